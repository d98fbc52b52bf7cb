#!/usr/bin/env bash
# Megatron-LM's GPT pretraining on mock data. Needs Megatron-LM, the PyTorch it asks for, and GPUS (8) of them.
#
#   MEGATRON=/path/to/Megatron-LM examples/megatron/pretrain.sh [more options of pretrain_gpt.py]
#
# config.json is the model of the flags below, counted as Megatron-LM counts: keep both alike. workload.batch is the global batch,
# of which parallel.dp says this rank's share; tensor and pipeline parallelism go there too (parallel.tp, parallel.pp).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpus=${GPUS:-8}
export MEGATRON=${MEGATRON:?expected the folder of Megatron-LM}
batch=$((4 * gpus))
exec mfu run -c "$here/config.json" --set "workload.batch=$batch,parallel.dp=$gpus" -- \
  torchrun --nproc-per-node "$gpus" "$here/pretrain.py" \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --ffn-hidden-size 4096 --seq-length 2048 \
  --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size "$batch" --train-iters 200 \
  --lr 1e-4 --bf16 --transformer-impl transformer_engine --mock-data --tokenizer-type NullTokenizer --vocab-size 50256 "$@"
