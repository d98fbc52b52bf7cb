// Python stacks as programs have them, and the cause and line that each must fold to.
#include "core/idle/host_work.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mfu {
namespace {

using Stack = std::vector<PythonFrame>;

const std::string kSite = "/opt/env/lib/python3.12/site-packages/";
const std::string kStandard = "/usr/lib/python3.12/";

HostWork of(const Stack& stack, bool collecting = false) { return work_of(stack, collecting); }

TEST(HostWork, TheInnermostLineOfTheProgramAndWhatItCalls) {
  const PythonFrame train{"/home/a/train.py", "main", 57}, top{"/home/a/train.py", "<module>", 90};
  // An iterator over workers, as torch 2.x has it.
  const Stack loader{{kStandard + "selectors.py", "PollSelector.select", 415},
                     {kStandard + "multiprocessing/connection.py", "wait", 1136},
                     {kStandard + "multiprocessing/queues.py", "Queue.get", 113},
                     {kSite + "torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1251},
                     {kSite + "torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 701},
                     {"/home/a/data.py", "batches", 88},
                     train,
                     top};
  EXPECT_EQ(of(loader), (HostWork{"DataLoader.__next__", "data.py:88", ""}));
  EXPECT_EQ(
      of({{kSite + "torch/serialization.py", "_save", 1200}, {kSite + "torch/serialization.py", "save", 850}, train}),
      (HostWork{"torch.save", "train.py:57", ""}));
  EXPECT_EQ(of({{kSite + "torch/optim/adamw.py", "AdamW.step", 220},
                {kSite + "torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 487},
                train}),
            (HostWork{"Optimizer.step", "train.py:57", ""}));
  EXPECT_EQ(of({{kSite + "torch/optim/lr_scheduler.py", "LRScheduler.step", 150}, train}).cause, "LRScheduler.step");
  EXPECT_EQ(of({{kSite + "torch/distributed/distributed_c10d.py", "barrier", 4000},
                {kSite + "torch/distributed/c10d_logger.py", "_exception_logger.<locals>.wrapper", 81},
                train})
                .cause,
            "dist.barrier");
  EXPECT_EQ(of({{kStandard + "threading.py", "Condition.wait", 355}, train}).cause, "threading.Condition.wait");
  EXPECT_EQ(of({{kSite + "requests/api.py", "get", 73}, train}).cause, "requests.get");
  EXPECT_EQ(of({{"<frozen importlib._bootstrap>", "_find_and_load", 1360}, train}).cause, "import");
  EXPECT_EQ(of({{kSite + "torch/nn/modules/module.py", "Module._wrapped_call_impl", 1780}, train}).cause,
            "torch.Module.__call__");
  EXPECT_EQ(of({{"/tmp/torchinductor_a/cc/ccgei.py", "call", 370},
                {kSite + "torch/_inductor/output_code.py", "CompiledFxGraph.__call__", 600},
                train}),
            (HostWork{"compiled code", "train.py:57", ""}));
  // C code leaves no frame: the function that called it.
  EXPECT_EQ(of({{"/home/a/train.py", "Trainer.run.<locals>.load", 12}, train}), (HostWork{"load", "train.py:12", ""}));
  EXPECT_EQ(of({top}), (HostWork{"main program", "train.py:90", ""}));
  EXPECT_EQ(of({{"<string>", "<module>", 1}}), (HostWork{"main program", "<string>:1", ""}));
  // The collector runs in any frame.
  EXPECT_EQ(of({{kSite + "torch/nn/modules/module.py", "Module.__call__", 1}, train}, true),
            (HostWork{"gc", "train.py:57", ""}));
}

TEST(HostWork, AStackWhoseEndWasNotSeenHasTheCauseThatItsLibrariesName) {
  EXPECT_EQ(of({{kSite + "triton/runtime/cache.py", "triton_key", 297},
                {kSite + "torch/_inductor/codecache.py", "get_system", 230}})
                .cause,
            "torch.compile");
}

TEST(HostWork, AnInstalledProgramHasItsOwnLines) {
  const Stack server{{kSite + "zmq/sugar/poll.py", "Poller.poll", 106},
                     {kSite + "vllm/v1/engine/core.py", "EngineCoreProc.run_busy_loop", 900},
                     {kStandard + "multiprocessing/process.py", "BaseProcess.run", 108}};
  EXPECT_EQ(of(server).where, "poll.py:106");
  const Stack torch_only{{kStandard + "threading.py", "Thread.run", 1000}};
  EXPECT_EQ(of(torch_only).where, "threading.py:1000");
  EXPECT_EQ(of({}), HostWork{});
}

}  // namespace
}  // namespace mfu
