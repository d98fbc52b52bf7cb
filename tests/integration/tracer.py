"""Runs COMMAND traced by a process called NAME, as a debugger does: tracer.py NAME COMMAND..."""
import ctypes
import os
import signal
import sys

PTRACE_TRACEME, PTRACE_CONT = 0, 7  # <sys/ptrace.h>
PR_SET_NAME = 15  # <sys/prctl.h>

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long

name, command = sys.argv[1], sys.argv[2:]
libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
child = os.fork()
if child == 0:
    if libc.ptrace(PTRACE_TRACEME, 0, None, None) != 0:
        os._exit(77)
    os.execvp(command[0], command)
while True:
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    stopped_by = os.WSTOPSIG(status)
    libc.ptrace(PTRACE_CONT, child, None, None if stopped_by == signal.SIGTRAP else stopped_by)
