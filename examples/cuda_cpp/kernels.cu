// The kernels of the example. kernels.ptx is made from this file, so that the example builds without nvcc:
//   nvcc -ptx -arch=compute_75 -O3 kernels.cu -o kernels.ptx
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// C = A[m, k] * B[k, n], row-major, all sizes multiples of 16: a warp makes 16 x 16 of C on the tensor cores, straight
// from global memory. Correct, and far from the speed that a library's GEMM has.
extern "C" __global__ void gemm_wmma_f16(const half* a, const half* b, half* c, int n, int k) {
  const int warp = threadIdx.x / 32;
  const int row = blockIdx.y * 16, column = (blockIdx.x * (blockDim.x / 32) + warp) * 16;
  if (column >= n) return;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int depth = 0; depth < k; depth += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, a + static_cast<size_t>(row) * k + depth, k);
    wmma::load_matrix_sync(fb, b + static_cast<size_t>(depth) * n + column, n);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> rounded;
  for (int i = 0; i < sum.num_elements; ++i) rounded.x[i] = __float2half(sum.x[i]);
  wmma::store_matrix_sync(c + static_cast<size_t>(row) * n + column, rounded, n, wmma::mem_row_major);
}

extern "C" __global__ void relu_f16(half* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && __hlt(x[i], __float2half(0.0f))) x[i] = __float2half(0.0f);
}
