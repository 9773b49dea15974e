package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// engine is one that takes requests.
type engine struct {
	id  string
	url string // where its rank 0 serves
}

// directory finds engines by asking the service.
type directory struct {
	client          *kvtransfer.Client
	model           string // empty: any
	prefill, decode string // URLs of engines that registered without an endpoint
}

// pick draws a prefill and a decode engine of one model, among those that are ready.
func (d *directory) pick(ctx context.Context) (prefill, decode engine, err error) {
	type side struct{ prefill, decode []*pb.Engine }
	models := map[string]*side{}
	for found, err := range d.client.ListEngines(ctx, &pb.ListEnginesRequest{Model: d.model}) {
		if err != nil {
			return engine{}, engine{}, err
		}
		if found.GetState() != pb.EngineState_ENGINE_STATE_READY {
			continue
		}
		sides := models[found.GetModel()]
		if sides == nil {
			sides = &side{}
			models[found.GetModel()] = sides
		}
		if found.GetRole() == pb.Role_ROLE_PREFILL {
			sides.prefill = append(sides.prefill, found)
		} else {
			sides.decode = append(sides.decode, found)
		}
	}
	for _, sides := range models { // a map's order is as good as any
		if len(sides.prefill) == 0 || len(sides.decode) == 0 {
			continue
		}
		if prefill, err = draw(sides.prefill, d.prefill); err == nil {
			decode, err = draw(sides.decode, d.decode)
		}
		return prefill, decode, err
	}
	return engine{}, engine{}, &refusal{503, "no prefill and decode engine of one model are ready"}
}

// draw picks one engine; fallback is its URL if it registered none.
func draw(engines []*pb.Engine, fallback string) (engine, error) {
	drawn := engines[rand.IntN(len(engines))]
	url := drawn.GetWorkers()[0].GetEndpoint() // of rank 0: workers come in the order of their ranks
	if url == "" {
		url = fallback
	}
	if url == "" {
		return engine{}, &refusal{503, fmt.Sprintf("engine %s registered no endpoint", drawn.GetEngineId())}
	}
	return engine{drawn.GetEngineId(), url}, nil
}

// refusal is an answer other than 200.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string {
	return r.message
}

func badRequest(format string, args ...any) *refusal {
	return &refusal{400, fmt.Sprintf(format, args...)}
}
