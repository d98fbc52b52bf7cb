"""`mfu verdict`: what holds on this machine of all that mfuinject assumes about a GPU, its driver and CUPTI.

Needs Python's standard library and this package's own files alone. Each step runs in processes of its own with a deadline; what
a machine lacks is skipped with a word.

| module | holds |
|---|---|
| `__main__` | command line and order of the steps |
| `steps` | what is started, compared and written down |
| `work` | the programs that are measured, each run in a process of its own |
| `driver` | the CUDA driver, cuBLAS and NVML by ctypes |
| `facts` | what machine this is |
| `statistics` | medians and their intervals |
| `report` | rows, the result file, the text |
| `assumptions` | which rows decide which assumption |
"""
