"""The messages of `kvtransfer.v1`, in one namespace: `from kvtransfer import v1 as pb`."""

from kvtransfer.v1.completion_pb2 import *
from kvtransfer.v1.engine_pb2 import *
from kvtransfer.v1.error_pb2 import *
from kvtransfer.v1.layout_pb2 import *
from kvtransfer.v1.link_pb2 import *
from kvtransfer.v1.registration_pb2 import *
from kvtransfer.v1.room_pb2 import *
from kvtransfer.v1.service_pb2 import *
from kvtransfer.v1.session_pb2 import *
from kvtransfer.v1.transfer_pb2 import *
