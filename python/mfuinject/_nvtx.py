"""A client of NVTX without a compiler: what a program's own copy of the NVTX 3 headers does at its first call.

The headers open the library that NVTX_INJECTION64_PATH names, call its InitializeInjectionNvtx2 with a function that
hands out tables of empty slots, and call what the tool has put there (nvtx3/nvtxDetail/nvtxInit.h, nvtxTypes.h). Here
the slots of push and pop are read back.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Tuple

_kept: List[Any] = []  # what the tool may look at until the process ends


def attach() -> Optional[Tuple[Callable[[bytes], int], Callable[[], int]]]:
    """(push, pop) of the tool that NVTX_INJECTION64_PATH names; None where there is none, or it does not want ranges."""
    path = os.environ.get("NVTX_INJECTION64_PATH")
    if not path or os.environ.get("NVTX_DISABLE"):
        return None
    import ctypes

    module_core, module_core2 = 1, 2  # NVTX_CB_MODULE_*
    size = 16  # NVTX_CBID_CORE_SIZE, NVTX_CBID_CORE2_SIZE
    push_a, pop = 9, 11  # NVTX_CBID_CORE_RangePushA, NVTX_CBID_CORE_RangePop
    etid_callbacks, etid_version = 1, 3  # NVTX_ETID_*
    nvtx_version = 3

    get_table = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
    set_version = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
    get_export_table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)

    class Callbacks(ctypes.Structure):  # NvtxExportTableCallbacks
        _fields_ = [("struct_size", ctypes.c_size_t), ("get_module_function_table", get_table)]

    class VersionInfo(ctypes.Structure):  # NvtxExportTableVersionInfo
        _fields_ = [
            ("struct_size", ctypes.c_size_t),
            ("version", ctypes.c_uint32),
            ("reserved0", ctypes.c_uint32),
            ("set_injection_nvtx_version", set_version),
        ]

    # A table is an array of pointers to slots; slot 0 does not exist, and a null pointer ends the array.
    def empty_table() -> Tuple[Any, Any]:
        slots = (ctypes.c_void_p * size)()
        table = (ctypes.c_void_p * (size + 1))()
        for i in range(1, size):
            table[i] = ctypes.addressof(slots) + i * ctypes.sizeof(ctypes.c_void_p)
        return slots, table

    tables = {module_core: empty_table(), module_core2: empty_table()}

    def give_table(module: int, table: Any, length: Any) -> int:
        if module not in tables:
            return 0
        if table:
            table[0] = ctypes.addressof(tables[module][1])
        if length:
            length[0] = size
        return 1

    callbacks = Callbacks(ctypes.sizeof(Callbacks), get_table(give_table))
    version = VersionInfo(ctypes.sizeof(VersionInfo), nvtx_version, 0, set_version(lambda _: None))
    exports = {etid_callbacks: ctypes.addressof(callbacks), etid_version: ctypes.addressof(version)}
    get_export = get_export_table(lambda table: exports.get(table))
    _kept.extend((tables, callbacks, version, get_export))

    try:
        initialize = ctypes.CDLL(path).InitializeInjectionNvtx2
        initialize.argtypes = [get_export_table]
        if initialize(get_export) == 0:
            return None
    except (OSError, AttributeError):
        return None  # as NVTX itself: without its tool a program runs unmeasured
    core = tables[module_core][0]
    if not core[push_a] or not core[pop]:
        return None
    # Calls that keep the interpreter's lock: a tool's push is shorter than giving the lock away and getting it back.
    return (
        ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(core[push_a]),
        ctypes.PYFUNCTYPE(ctypes.c_int)(core[pop]),
    )
