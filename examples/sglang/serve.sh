#!/usr/bin/env bash
# SGLang's server with SGLang's own NVTX marks. Needs SGLang and a CUDA GPU.
#
#   examples/sglang/serve.sh MODEL [more options of sglang.launch_server]
#   examples/sglang/serve.sh Qwen/Qwen3-0.6B --port 30000
#
# --enable-layerwise-nvtx-marker marks every layer, and needs CUDA graphs off. Layers are no regions of a model's work, so what is
# printed is the whole process: times and the waterfall, and MFU where a rule of the config maps an outer range of your
# version to prefill or decode, for example {"regions": [{"region": "decode", "match": "my_decode.*"}]}. Ranges named
# `decode[bs=N]`, as some builds emit them around a pass, are regions as they are.
set -euo pipefail
(($# >= 1)) || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1
shift
exec mfu run -c "$model" -- python -m sglang.launch_server --model-path "$model" --enable-layerwise-nvtx-marker \
  --disable-cuda-graph "$@"
