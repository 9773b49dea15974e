#!/usr/bin/env bash
# SGLang's release that `make bench ARGS=peer` measures, into an environment of its own, .cache/peers/sglang: some 6 GB, a
# minute or two. Needs `make setup`, which brings uv.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=.venv/bin/uv
home=.cache/peers/sglang
"$uv" venv --quiet --clear --python .venv/bin/python "$home"
"$uv" pip install --quiet --python "$home/bin/python" -r benchmarks/peers/requirements.txt
"$uv" pip install --quiet --python "$home/bin/python" --no-deps -r benchmarks/peers/requirements-alone.txt
"$home/bin/python" -W ignore -c "import sglang.srt.disaggregation.nixl.conn"
echo "SGLang is in $home"
