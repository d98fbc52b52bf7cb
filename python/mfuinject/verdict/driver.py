"""The CUDA driver, cuBLAS and NVML by ctypes: what the measured programs call. Nothing here knows mfuinject."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

# Kernels that do nothing. The first comment line gives their length on a simulated GPU.
PTX = b"""// simgpu: verdict_empty ns=1500
.version 6.4
.target sm_70
.address_size 64
.visible .entry verdict_empty()
{
  ret;
}
"""


# A kernel that lasts as long as its argument says [ns, 32 bits], by the GPU's own clock. The first comment says the same to a
# simulated GPU.
SPIN_PTX = b"""// simgpu: verdict_spin ns_param=0
.version 6.4
.target sm_70
.address_size 64
.visible .entry verdict_spin(.param .u32 duration)
{
  .reg .u32 %r<2>;
  .reg .u64 %rd<5>;
  .reg .pred %p<2>;
  mov.u64 %rd1, %globaltimer;
  ld.param.u32 %r1, [duration];
  cvt.u64.u32 %rd2, %r1;
  add.u64 %rd3, %rd1, %rd2;
again:
  mov.u64 %rd4, %globaltimer;
  setp.lt.u64 %p1, %rd4, %rd3;
  @%p1 bra again;
  ret;
}
"""


class DriverError(RuntimeError):
    """A call failed: its name and the number it returned."""

    def __init__(self, name: str, code: int):
        super().__init__(f"{name} fails with {code}")
        self.code = code


class Cuda:
    """Device 0 and its primary context. Raises DriverError, or OSError where there is no driver."""

    def __init__(self, init_only: bool = False):
        self.functions = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        if init_only:
            return
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.empty_kernel = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(self.empty_kernel), module, b"verdict_empty")
        self.context = context
        self.stream = self.new_stream()
        self._launch = self.functions.cuLaunchKernel
        self._launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
        self._graph_launch = self.functions.cuGraphLaunch
        self._graph_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.functions, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def new_stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)  # not ordered against the default stream
        return stream

    def launch_empty(self, blocks: int = 1) -> None:
        self.launch(self.empty_kernel, blocks)

    def launch(self, kernel: ctypes.c_void_p, blocks: int = 1) -> None:
        code = self._launch(kernel, blocks, 1, 1, 32, 1, 1, 0, self.stream, None, None)
        if code:
            raise DriverError("cuLaunchKernel", code)

    def spinner(self) -> Callable[[int, ctypes.c_void_p], None]:
        """Launches a kernel of so many nanoseconds on a stream."""
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), SPIN_PTX)
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"verdict_spin")

        def spin(ns: int, stream: ctypes.c_void_p) -> None:
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration := ctypes.c_uint32(ns)))
            code = self._launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
            del duration  # the driver has copied it
            if code:
                raise DriverError("cuLaunchKernel", code)

        return spin

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def graph_of_empty_kernels(self, nodes: int) -> ctypes.c_void_p:
        """Captured, as frameworks make theirs; the kernel ran once before."""
        self.launch_empty()
        self.synchronize()
        return self.graph_of(nodes, self.launch_empty)

    def graph_of(self, nodes: int, launch: Callable[[], None]) -> ctypes.c_void_p:
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, 1)
        for _ in range(nodes):
            launch()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        return executable

    def launch_graph(self, executable: ctypes.c_void_p) -> None:
        code = self._graph_launch(executable, self.stream)
        if code:
            raise DriverError("cuGraphLaunch", code)

    def devices(self) -> int:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def free_memory(self) -> int:
        """Free device memory [B]."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def timed(self, work: Any) -> float:
        """Runs work(); what the stream took for it by two events [s]."""
        begin, end, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        for event in (begin, end):
            self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", begin, self.stream)
        work()
        self.call("cuEventRecord", end, self.stream)
        self.call("cuEventSynchronize", end)
        self.call("cuEventElapsedTime", ctypes.byref(ms), begin, end)
        return ms.value * 1e-3


class Blas:
    """cublasGemmEx of one libcublas. bf16 in and out, fp32 accumulation."""

    BF16, COMPUTE_FP32, DEFAULT_ALGORITHM = 14, 68, -1

    def __init__(self, cuda: Cuda, path: str):
        self.functions, self.cuda = ctypes.CDLL(path), cuda
        self.handle = ctypes.c_void_p()
        self.call("cublasCreate_v2", ctypes.byref(self.handle))
        self.call("cublasSetStream_v2", self.handle, cuda.stream)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.functions, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def product(self, m: int, n: int, k: int, a: ctypes.c_uint64, b: ctypes.c_uint64, c: ctypes.c_uint64) -> None:
        """C (m x n) = A (m x k) B (k x n), all in the order of columns."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self.call(
            "cublasGemmEx",
            self.handle,
            0,
            0,
            m,
            n,
            k,
            ctypes.byref(one),
            a,
            self.BF16,
            m,
            b,
            self.BF16,
            k,
            ctypes.byref(zero),
            c,
            self.BF16,
            m,
            self.COMPUTE_FP32,
            self.DEFAULT_ALGORITHM,
        )


class Nvml:
    """Device 0 by NVML. OSError where there is no NVML, DriverError where it refuses."""

    def __init__(self) -> None:
        self.functions = ctypes.CDLL("libnvidia-ml.so.1")
        self.call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.functions, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def energy_mj(self) -> int:
        """Since the driver was loaded [mJ]. Volta and newer."""
        value = ctypes.c_ulonglong()
        self.call("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(value))
        return value.value

    def power_mw(self) -> int:
        value = ctypes.c_uint()
        self.call("nvmlDeviceGetPowerUsage", self.device, ctypes.byref(value))
        return value.value

    def sm_clock_mhz(self) -> int:
        value = ctypes.c_uint()
        self.call("nvmlDeviceGetClockInfo", self.device, 1, ctypes.byref(value))
        return value.value
