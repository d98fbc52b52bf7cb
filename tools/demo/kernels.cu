// The kernels of `mfu demo`: a small transformer's work, plain and correct rather than fast. kernels.ptx is made
// from this file by the target `demo_ptx` and is what the binary carries. The `// simgpu:` lines at its head, kept in
// kernels_costs.txt, tell the simulated GPU how long each takes.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

namespace {

constexpr int kTile = 64;   // a block makes 64 x 64 of C with 4 warps, each 32 x 32
constexpr int kDepth = 32;  // of K per round
constexpr int kPad = 8;     // against bank conflicts

// C tile = A[m, k] * B[k, n], row-major, leading dimensions k and n. Sizes are multiples of 64 (k of 32).
__device__ void gemm_tile(const half* a, const half* b, half* c, int n, int k) {
  __shared__ half tile_a[kTile][kDepth + kPad];
  __shared__ half tile_b[kDepth][kTile + kPad];
  __shared__ float result[kTile][kTile + kPad];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
  for (auto& line : sum) {
    for (auto& s : line) wmma::fill_fragment(s, 0.0f);
  }
  for (int depth = 0; depth < k; depth += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth / 2; i += blockDim.x) {
      const int r = i / (kDepth / 2), x = i % (kDepth / 2) * 2;
      *reinterpret_cast<half2*>(&tile_a[r][x]) =
          *reinterpret_cast<const half2*>(&a[static_cast<size_t>(row + r) * k + depth + x]);
    }
    for (int i = threadIdx.x; i < kDepth * kTile / 2; i += blockDim.x) {
      const int r = i / (kTile / 2), x = i % (kTile / 2) * 2;
      *reinterpret_cast<half2*>(&tile_b[r][x]) =
          *reinterpret_cast<const half2*>(&b[static_cast<size_t>(depth + r) * n + column + x]);
    }
    __syncthreads();
    for (int d = 0; d < kDepth; d += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(fa[i], &tile_a[warp_row + 16 * i][d], kDepth + kPad);
        wmma::load_matrix_sync(fb[i], &tile_b[d][warp_column + 16 * i], kTile + kPad);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(&result[warp_row + 16 * i][warp_column + 16 * j], sum[i][j], kTile + kPad,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += blockDim.x) {
    c[static_cast<size_t>(row + i / kTile) * n + column + i % kTile] = __float2half(result[i / kTile][i % kTile]);
  }
}

}  // namespace

// grid (n/64, m/64), 128 threads.
extern "C" __global__ void demo_gemm_f16_64x64(const half* a, const half* b, half* c, int n, int k) {
  gemm_tile(a, b, c, n, k);
}

// Scores of one head per blockIdx.z: [t, t] = Q[t, 64] * K[64, t]. Causal: tiles above the diagonal are not made.
extern "C" __global__ void demo_attention_scores(const half* q, const half* k, half* scores, int t, int width) {
  if (blockIdx.x > blockIdx.y) return;
  const size_t head = blockIdx.z;
  gemm_tile(q + head * t * width, k + head * t * width, scores + head * t * t, t, width);
}

// Output of one head per blockIdx.z: [t, 64] = P[t, t] * V[t, 64], over the causal part of P only.
extern "C" __global__ void demo_attention_values(const half* p, const half* v, half* out, int t, int width) {
  const size_t head = blockIdx.z;
  const half* a = p + head * t * t;
  const half* b = v + head * t * width;
  half* c = out + head * t * width;
  // Rows of this block see the keys up to the end of their own tile.
  const int keys = (blockIdx.y + 1) * kTile;
  __shared__ half tile_a[kTile][kDepth + kPad];
  __shared__ half tile_b[kDepth][kTile + kPad];
  const int row = blockIdx.y * kTile;
  const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> sum[2][2];
  for (auto& line : sum) {
    for (auto& s : line) wmma::fill_fragment(s, __float2half(0.0f));
  }
  for (int depth = 0; depth < keys; depth += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += blockDim.x) {
      tile_a[i / kDepth][i % kDepth] = a[static_cast<size_t>(row + i / kDepth) * t + depth + i % kDepth];
    }
    for (int i = threadIdx.x; i < kDepth * kTile; i += blockDim.x) {
      tile_b[i / kTile][i % kTile] = b[static_cast<size_t>(depth + i / kTile) * width + i % kTile];
    }
    __syncthreads();
    for (int d = 0; d < kDepth; d += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(fa[i], &tile_a[warp_row + 16 * i][d], kDepth + kPad);
        wmma::load_matrix_sync(fb[i], &tile_b[d][warp_column + 16 * i], kTile + kPad);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(&c[static_cast<size_t>(row + warp_row + 16 * i) * width + warp_column + 16 * j],
                              sum[i][j], width, wmma::mem_row_major);
    }
  }
}

// One new token per sequence: out[m, n] = x[m, k] * w[k, n] for m <= 16. grid (n/64), 256 threads: 64 columns x 4 parts
// of k.
extern "C" __global__ void demo_gemm_skinny_f16(const half* x, const half* w, half* out, int m, int n, int k) {
  __shared__ float part[4][64];
  const int column = blockIdx.x * 64 + threadIdx.x % 64, split = threadIdx.x / 64;
  float sum[16] = {};
  for (int i = split; i < k; i += 4) {
    const float weight = __half2float(w[static_cast<size_t>(i) * n + column]);
    for (int r = 0; r < m; ++r) sum[r] += weight * __half2float(x[static_cast<size_t>(r) * k + i]);
  }
  for (int r = 0; r < m; ++r) {
    part[split][threadIdx.x % 64] = sum[r];
    __syncthreads();
    if (split == 0) {
      const int c = threadIdx.x;
      out[static_cast<size_t>(r) * n + column] = __float2half(part[0][c] + part[1][c] + part[2][c] + part[3][c]);
    }
    __syncthreads();
  }
}

// One query per sequence and head over its cache: grid (heads, batch), 128 threads. Softmax kept simple: no rescaling.
extern "C" __global__ void demo_attention_decode(const half* q, const half* keys, const half* values, half* out,
                                                 int context) {
  constexpr int kWidth = 64;
  __shared__ float total[128];
  __shared__ float sums[kWidth];
  const size_t head = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const half* k = keys + head * context * kWidth;
  const half* v = values + head * context * kWidth;
  if (threadIdx.x < kWidth) sums[threadIdx.x] = 0;
  __syncthreads();
  float weight_sum = 0;
  for (int t = threadIdx.x; t < context; t += blockDim.x) {
    float score = 0;
#pragma unroll 4
    for (int i = 0; i < kWidth; ++i)
      score += __half2float(q[head * kWidth + i]) * __half2float(k[static_cast<size_t>(t) * kWidth + i]);
    const float weight = __expf(fminf(score * 0.125f, 10.0f));
    weight_sum += weight;
#pragma unroll 4
    for (int i = 0; i < kWidth; ++i) atomicAdd(&sums[i], weight * __half2float(v[static_cast<size_t>(t) * kWidth + i]));
  }
  total[threadIdx.x] = weight_sum;
  __syncthreads();
  if (threadIdx.x < kWidth) {
    float all = 0;
#pragma unroll 4
    for (int i = 0; i < 128; ++i) all += total[i];
    out[head * kWidth + threadIdx.x] = __float2half(sums[threadIdx.x] / fmaxf(all, 1e-6f));
  }
}

// Softmax of a causal score row: grid (t, heads x batch), 256 threads.
extern "C" __global__ void demo_softmax(half* scores, int t) {
  __shared__ float total[256];
  half* row = scores + (static_cast<size_t>(blockIdx.y) * t + blockIdx.x) * t;
  const int length = static_cast<int>(blockIdx.x) + 1;
  float sum = 0;
  for (int i = threadIdx.x; i < length; i += blockDim.x) sum += __expf(fminf(__half2float(row[i]) * 0.125f, 10.0f));
  total[threadIdx.x] = sum;
  __syncthreads();
  for (int width = 128; width > 0; width /= 2) {
    if (threadIdx.x < width) total[threadIdx.x] += total[threadIdx.x + width];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < t; i += blockDim.x) {
    row[i] =
        i < length ? __float2half(__expf(fminf(__half2float(row[i]) * 0.125f, 10.0f)) / total[0]) : __float2half(0.0f);
  }
}

// grid (rows), 256 threads.
extern "C" __global__ void demo_layernorm(const half* in, half* out, int width) {
  __shared__ float total[256], square[256];
  const half* x = in + static_cast<size_t>(blockIdx.x) * width;
  float sum = 0, sum2 = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = __half2float(x[i]);
    sum += value;
    sum2 += value * value;
  }
  total[threadIdx.x] = sum;
  square[threadIdx.x] = sum2;
  __syncthreads();
  for (int w = 128; w > 0; w /= 2) {
    if (threadIdx.x < w) {
      total[threadIdx.x] += total[threadIdx.x + w];
      square[threadIdx.x] += square[threadIdx.x + w];
    }
    __syncthreads();
  }
  const float mean = total[0] / width, scale = rsqrtf(fmaxf(square[0] / width - mean * mean, 0.0f) + 1e-5f);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    out[static_cast<size_t>(blockIdx.x) * width + i] = __float2half((__half2float(x[i]) - mean) * scale);
  }
}

// grid (elements/1024), 256 threads of 4 elements: gelu forward, and what stands for its backward.
extern "C" __global__ void demo_gelu(half* x) {
  const size_t base = (static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  for (int i = 0; i < 4; ++i) {
    const float v = __half2float(x[base + i]);
    x[base + i] = __float2half(0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))));
  }
}

// grid (elements/1024), 256 threads of 4 elements.
extern "C" __global__ void demo_add(half* out, const half* in) {
  const size_t base = (static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  for (int i = 0; i < 4; ++i) out[base + i] = __hadd(out[base + i], in[base + i]);
}

// grid (tokens), 256 threads.
extern "C" __global__ void demo_embedding(const int* tokens, const half* table, half* out, int width) {
  const int token = tokens[blockIdx.x] & 0x7FFF;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    out[static_cast<size_t>(blockIdx.x) * width + i] = table[static_cast<size_t>(token) * width + i];
  }
}

// grid (parameters/1024), 256 threads of 4 parameters.
extern "C" __global__ void demo_adamw(half* weight, const half* gradient, float* first, float* second) {
  const size_t base = (static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  for (int i = 0; i < 4; ++i) {
    const float g = __half2float(gradient[base + i]);
    const float m = first[base + i] = 0.9f * first[base + i] + 0.1f * g;
    const float v = second[base + i] = 0.95f * second[base + i] + 0.05f * g * g;
    const float w = __half2float(weight[base + i]);
    weight[base + i] = __float2half(w - 6e-4f * (m / (sqrtf(v) + 1e-8f) + 0.1f * w));
  }
}

// Greedy sampling: the most likely token of each sequence. grid (sequences), 256 threads.
extern "C" __global__ void demo_argmax(const half* logits, int* tokens, int vocabulary) {
  __shared__ float best[256];
  __shared__ int at[256];
  const half* row = logits + static_cast<size_t>(blockIdx.x) * vocabulary;
  float most = -1e30f;
  int where = 0;
  for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
    const float value = __half2float(row[i]);
    if (value > most) {
      most = value;
      where = i;
    }
  }
  best[threadIdx.x] = most;
  at[threadIdx.x] = where;
  __syncthreads();
  for (int width = 128; width > 0; width /= 2) {
    if (threadIdx.x < width && best[threadIdx.x + width] > best[threadIdx.x]) {
      best[threadIdx.x] = best[threadIdx.x + width];
      at[threadIdx.x] = at[threadIdx.x + width];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = at[0];
}
