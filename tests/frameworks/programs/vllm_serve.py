"""`vllm serve`, asked by several clients at a time, and ended by SIGTERM, as a deployment ends it: vllm_serve.py --config CONFIG"""

import concurrent.futures
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

REQUESTS, TOGETHER = 24, 6


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port, path, body=None):
    words = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(words, timeout=120) as answer:
        return answer.read()


def ask_all(port):
    while True:
        try:
            ask(port, "/health")
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)

    def complete(number):
        prompt = [random.Random(number).randrange(3, 30000) for _ in range(16 + 11 * number)]
        body = {"model": "small", "prompt": prompt, "max_tokens": 8 + number % 17, "temperature": 0, "ignore_eos": True}
        return json.loads(ask(port, "/v1/completions", body))["usage"]

    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        used = [*pool.map(complete, range(REQUESTS))]
    print("prompts", sum(one["prompt_tokens"] for one in used), "generated", sum(one["completion_tokens"] for one in used), flush=True)
    # A deployment signals `mfu run`, where there is one.
    os.kill(os.getppid() if "MFU_RUN_DIR" in os.environ else os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    import vllm_names
    from vllm.entrypoints.cli.main import main

    vllm_names.name_passes(vllm_names.by_prompts)  # in the engine's process, too, which is a copy of this one
    port = free_port()
    words = ["--load-format", "dummy", "--skip-tokenizer-init", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "8"]
    words += ["--gpu-memory-utilization", "0.5", "--served-model-name", "small", "--disable-log-stats", "--disable-uvicorn-access-log"]
    sys.argv = ["vllm", "serve", sys.argv[2], "--host", "127.0.0.1", "--port", str(port), *words]
    threading.Thread(target=ask_all, args=(port,), daemon=True).start()
    main()
