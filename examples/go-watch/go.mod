module github.com/kvtransfer/kvtransfer/examples/go-watch

go 1.26.0

require github.com/kvtransfer/kvtransfer/clients/go v0.0.0

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/kvtransfer/kvtransfer/clients/go => ../../clients/go
