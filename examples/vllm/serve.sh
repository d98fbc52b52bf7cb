#!/usr/bin/env bash
# vLLM's server, its passes named by vLLM's own NVTX ranges. Needs vLLM, a CUDA GPU and curl.
#
#   examples/vllm/serve.sh MODEL [more options of `vllm serve`]
#   examples/vllm/serve.sh Qwen/Qwen3-0.6B --port 8000
#
# The profiler `cuda` is vLLM's switch for NVTX: while it runs, each pass of a worker is a range
# `execute_context_<n>(<tokens>)_generation_<m>(<tokens>)`, which is a region (prefill, decode or mixed) as it is. It begins with
# the request to /start_profile below and ends with /stop_profile or --profiler-config.max_iterations. Where vLLM knows
# `--profiler-config.detailed_trace_annotation true` (0.32 does), the names give the context of decode as well. Without the profiler
# decode and prefill_or_mixed are found in the kernels, with a bound of MFU. One file per worker; workers are processes of their own.
set -euo pipefail
(($# >= 1)) || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1
shift
port=8000
for ((i = 1; i < $#; ++i)); do
  [[ ${!i} == --port ]] && { next=$((i + 1)); port=${!next}; }
done
# Asked for again until the server is up; ends with this script.
(until curl --silent --fail --request POST "http://127.0.0.1:$port/start_profile" >/dev/null; do sleep 2; done) &
exec mfu run -c "$model" -- vllm serve "$model" --profiler-config.profiler cuda "$@"
