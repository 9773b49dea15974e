#!/usr/bin/env bash
# Tries the whole on a machine with an NVIDIA GPU and no network: the demo on GPU memory, transfers in host and GPU
# memory, and whether what carries them can carry GPU memory at all. Prints one table; exit status 0 only if all is well.
#
#   scripts/gpu_check.sh WHEELS       WHEELS: the folder that `make gpu-wheels` made; needs Python 3.12, torch for CUDA 13,
#                                     grpcio and protobuf there. PYTHON names another interpreter than python3.
#   scripts/gpu_check.sh --dry-run    the same on a machine without a GPU, in host memory, and shorter; needs no wheels
#                                     where the project is installed
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m scripts.gpu_check "$@"
