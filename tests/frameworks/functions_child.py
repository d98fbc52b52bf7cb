"""Functions, methods and updates that torch.compile compiled: passes, backward passes and updates that the interpreter's part reports. On the CPU.

Prints a line for each program, and exits with 1 where a fact is missing, is too many or has other FLOP than PyTorch counts.
"""

import sys
import warnings

import torch
from counts_child import BATCH, LENGTH, PASS_BEGIN, PASS_END, PASS_WORK, WIDTH, WORDS, Block, Causal, Model, facts, ids, listen
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

BACKWARD_BEGIN, BACKWARD_END, UPDATE_BEGIN, UPDATE_END = 2, 3, 4, 5
PASS, BACKWARD, UPDATE = [PASS_BEGIN, PASS_END], [BACKWARD_BEGIN, BACKWARD_END], [UPDATE_BEGIN, UPDATE_END]
STEP = PASS + BACKWARD + UPDATE
STEPS = 3


def compiled(function, **more):
    return torch.compile(function, backend="aot_eager", **more)


def model_and_optimizer(kind=torch.optim.AdamW):
    model = Model(lambda: Block(attention=Causal))
    return model, kind(model.parameters(), lr=1e-3)


def trained(loss, optimizer, update=None):
    def step(x):
        loss(x).backward()
        (update or optimizer.step)()
        optimizer.zero_grad()

    return step


def forward_of_an_object():
    model, optimizer = model_and_optimizer()
    model.forward = compiled(model.forward)
    return trained(lambda x: model(x).sum(), optimizer)


def forward_of_a_class():
    class Decorated(Model):
        forward = compiled(Model.forward)

    model = Decorated(lambda: Block(attention=Causal))
    return trained(lambda x: model(x).sum(), torch.optim.SGD(model.parameters(), lr=1e-3))


def bound_forward():
    model, optimizer = model_and_optimizer()
    call = compiled(model.forward)
    return trained(lambda x: call(x).sum(), optimizer)


def forward_of_layers():
    model, optimizer = model_and_optimizer()
    for layer in model.layers:
        layer.forward = compiled(layer.forward)
    return trained(lambda x: model(x).sum(), optimizer)


def model_as_an_argument():
    model, optimizer = model_and_optimizer()
    loss = compiled(lambda one, x: one(x).sum())
    return trained(lambda x: loss(model, x), optimizer)


def model_in_a_closure():
    model, optimizer = model_and_optimizer()
    return trained(compiled(lambda x: model(x).sum()), optimizer)


def method_of_a_trainer():
    class Trainer:
        def __init__(self):
            self.model, self.optimizer = model_and_optimizer()
            self.criterion = nn.CrossEntropyLoss()
            self.loss = compiled(self.loss)

        def loss(self, x):
            return self.criterion(self.model(x).flatten(0, 1), x.flatten())

    trainer = Trainer()
    return trained(trainer.loss, trainer.optimizer)


def method_of_a_module():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model_and_optimizer()[0]

        def training_step(self, x):
            return self.model(x).sum()

    whole = Whole()
    return trained(compiled(whole.training_step), torch.optim.SGD(whole.parameters(), lr=1e-3))


def two_models():
    """A student and a frozen teacher; a third model is named and does not run."""
    (model, optimizer), teacher, other = model_and_optimizer(), Model(lambda: Block(attention=Causal)).requires_grad_(False), Model()

    @compiled
    def loss(x):
        with torch.no_grad():
            wanted = (other if WIDTH == 0 else teacher)(x)
        return (model(x) - wanted).square().mean()

    return trained(loss, optimizer)


def adversaries():
    """Each of two models has a function with both, and an optimizer."""
    (first, of_first), (second, of_second) = model_and_optimizer(), model_and_optimizer()

    @compiled
    def one(x):
        with torch.no_grad():
            wanted = second(x)
        return (first(x) - wanted).square().mean()

    @compiled
    def other(x):
        with torch.no_grad():
            wanted = first(x)
        return (second(x) - wanted).square().mean()

    def step(x):
        trained(one, of_first)(x)
        trained(other, of_second)(x)

    return step


def apply(function, x):
    return function(x)


class Sum(nn.Module):
    def forward(self, first, second):
        return first + second


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = Sum()
        self.first, self.second = (Model(lambda: Block(attention=Causal)) for _ in range(2))

    def training_step(self, x):
        return (self.first(x) + self.second(x)).sum()

    def nested(self, x):
        return self.sum(self.first(x), self.second(x)).sum()

    def with_more(self, x, **more):
        return (self.first(x, **more) + self.second(x, **more)).sum()

    def repeated(self, x):
        y = self.second(x)
        for _ in range(2):
            y = y + self.first(x)
        return y.sum()

    def one_by_one(self, x):
        first = self.first(x)
        other = self.other(x)
        return (first + other + self.second(x)).sum()

    def other(self, x):
        return self.first(x)

    def around_a_loop(self, x):
        first = self.first(x)
        other = self.repeated(x)
        return first.sum() + other + self.second(x).sum()

    def around_a_function(self, x):
        first = self.first(x)
        other = apply(self.second, x)
        return (first + other + self.second(x)).sum()

    def with_its_step(self, x, optimizer):
        loss = (self.first(x) + self.second(x)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def of_a_pair(name):
    def method():
        pair = Pair()
        optimizer = torch.optim.SGD(pair.parameters(), lr=1e-3)
        return trained(getattr(pair, name), optimizer)

    method.__name__ = f"method_{name}"
    return method


def method_with_the_whole_step():
    pair = Pair()
    optimizer = torch.optim.SGD(pair.parameters(), lr=1e-3)
    return lambda x: pair.with_its_step(x, optimizer)


def whole_step():
    model, optimizer = model_and_optimizer(torch.optim.SGD)
    return compiled(trained(lambda x: model(x).sum(), optimizer))


def model_called_twice():
    model, optimizer = model_and_optimizer()
    return trained(compiled(lambda x: model(x).sum() + model(x).mean()), optimizer)


def no_products():
    """A function without products is no pass."""
    (model, optimizer), other = model_and_optimizer(), Model()

    @compiled
    def mean(x):
        with torch.no_grad():
            for a, b in zip(other.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
        return x

    @compiled
    def norm():
        return sum(p.grad.norm() for p in model.parameters() if p.grad is not None)

    def update():
        norm()
        optimizer.step()
        mean(torch.zeros(1))

    return trained(lambda x: model(x).sum(), optimizer, update)


def after_an_exception():
    model, optimizer = model_and_optimizer()
    loss = compiled(lambda x: model(x).sum())

    def fails_first(x):
        try:
            loss(x.float())
        except RuntimeError:  # of torch.compile from some version on
            pass
        return loss(x)

    return trained(fails_first, optimizer)


def compiled_optimizer():
    model, optimizer = model_and_optimizer()
    return trained(lambda x: model(x).sum(), optimizer, compiled(optimizer.step))


def optimizer_in_a_function():
    model, optimizer = model_and_optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def update():
        optimizer.step()

    update = compiled(update)
    return trained(lambda x: model(x).sum(), optimizer, lambda: (update(), schedule.step()))


def two_optimizers():
    model = model_and_optimizer()[0]
    first, second = torch.optim.SGD(model.layers.parameters(), lr=1e-3), torch.optim.SGD(model.head.parameters(), lr=1e-3)

    def update():
        first.step()
        second.step()

    return trained(lambda x: model(x).sum(), first, compiled(update))


# The facts of each step, and how often the model's FLOP.
PROGRAMS = {
    whole_step: (STEP, 1),  # before a module of this process was called
    forward_of_an_object: (STEP, 1),
    forward_of_a_class: (STEP, 1),
    bound_forward: (STEP, 1),
    forward_of_layers: (STEP, 1),
    model_as_an_argument: (STEP, 1),
    model_in_a_closure: (STEP, 1),
    method_of_a_trainer: (STEP, 1),
    method_of_a_module: (STEP, 1),
    model_called_twice: (STEP, 2),
    no_products: (STEP, 1),
    after_an_exception: (STEP, 1),
    compiled_optimizer: (STEP, 1),
    optimizer_in_a_function: (STEP, 1),
    two_optimizers: (STEP + UPDATE, 1),
    # Passes of several models, each FLOP forward and backward.
    two_models: (STEP, [(2, 2)]),
    adversaries: (STEP + STEP, [(2, 2), (2, 2)]),
    of_a_pair("training_step"): (STEP, [(2, 4)]),
    of_a_pair("nested"): (STEP, [(2, 4)]),
    of_a_pair("with_more"): (STEP, [(2, 4)]),
    of_a_pair("repeated"): (PASS * 2 + STEP, [(1, 2), (1, 2)]),
    of_a_pair("one_by_one"): (STEP, [(3, 6)]),
    of_a_pair("around_a_loop"): (PASS * 4 + STEP, [(1, 2), (1, 2)]),
    of_a_pair("around_a_function"): (PASS * 2 + STEP, [(1, 2), (1, 2)]),
    method_with_the_whole_step: (STEP, [(2, 4)]),
}


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class Operator(nn.Module):
    def __init__(self, apply, *shape):
        super().__init__()
        self.apply_it, self.weight = apply, nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.apply_it(x, self.weight)


def flexible(mask):
    def apply(x, weight):
        states = (x @ weight).view(2, 128, 2, 8).transpose(1, 2)
        return flex_attention(states, states, states, block_mask=mask)

    return apply


def mask_of(function):
    return create_block_mask(function, None, None, 128, 128, device="cpu")


PAIRS = 2 * 2 * 4 * 8  # FLOP of each: batch x heads x 4 x width
LINEAR = 2 * 2 * 128 * 16 * 16
# Functions of an argument and a weight, the shapes of both, FLOP forward and backward or, None, those that PyTorch counts; -1: not known.
OPERATORS = {
    "einsum": (lambda x, weight: torch.einsum("bik, kj -> bij", x, weight), (3, 5, 8), (8, 4), None),
    "einsum of three": (lambda x, weight: torch.einsum("bik,kj,jl->bil", x, weight, weight), (3, 5, 8), (8, 8), -1),
    "function of autograd": (Multiplied.apply, (5, 8), (8, 4), None),
    "experts": (lambda x, weight: torch.bmm(x, weight), (3, 5, 8), (3, 8, 4), None),
    "branches": (lambda x, weight: torch.cond(x.sum() > 0, lambda a: a @ weight, lambda a: a @ weight * 2, (x,)), (5, 8), (8, 8), -1),
    "attention of all": (flexible(None), (2, 128, 16), (16, 16), LINEAR + PAIRS * 128 * 128),
    "causal attention": (flexible(mask_of(lambda b, h, q, k: q >= k)), (2, 128, 16), (16, 16), LINEAR + PAIRS * 128 * 129 // 2),
    "attention of a mask": (flexible(mask_of(lambda b, h, q, k: (q - k < 16) & (q >= k))), (2, 128, 16), (16, 16), -1),
}


def counts_operator(apply, of_argument, of_weight, wanted):
    module, x = Operator(apply, *of_weight), torch.randn(of_argument, requires_grad=True)
    train = wanted is None  # FlexAttention has no backward pass on the CPU, and what is not known is so forward
    if train:
        with FlopCounterMode(display=False) as forward:
            result = module(x)
        with FlopCounterMode(display=False) as backward:
            result.sum().backward()
        wanted = forward.get_total_flops(), backward.get_total_flops()
    torch._dynamo.reset()
    facts.clear()
    run = compiled(module)
    for _ in range(2):
        with torch.set_grad_enabled(train):
            result = run(x)
        if train:
            result.sum().backward()
    found = [fact[4:] for fact in facts if fact[0] == PASS_WORK]
    return found, (found == [wanted] if train else [flop[0] for flop in found] == [wanted])


def main():
    warnings.filterwarnings("ignore")
    listen()
    forward = 2 * BATCH * LENGTH * (3 * 12 * WIDTH * WIDTH + WIDTH * WORDS) + 3 * 4 * WIDTH * BATCH * LENGTH * (LENGTH + 1) // 2
    wrong, compiled_too = 0, []
    for program, (wanted, times) in PROGRAMS.items():
        torch._dynamo.reset()
        step = program()
        facts.clear()
        for _ in range(STEPS):
            step(ids())
        codes = [reference() for reference in torch._dynamo.convert_frame.input_codes.seen]
        compiled_too += [code.co_name for code in codes if code is not None and code.co_filename == "<mfuinject>"]
        told = [fact[0] for fact in facts if fact[0] in STEP]
        flop = [fact[4:] for fact in facts if fact[0] == PASS_WORK]
        true = [(ahead * forward, back * forward) for ahead, back in (times if type(times) is list else [(times, 2 * times)])]
        good = told == wanted * STEPS and flop == true
        wrong += not good
        print("ok  " if good else "FAIL", program.__name__.replace("_", " "), "" if good else f"{told}, {flop}, true {true}")
    for name, about in OPERATORS.items():
        found, good = counts_operator(*about)
        wrong += not good
        print("ok  " if good else "FAIL", name, "" if good else f"{found}, true {about[3]}")
    wrong += len(compiled_too) > 0
    print(f"FAIL {compiled_too}" if compiled_too else "ok  ", "torch.compile passes the interpreter's part over")
    print(f"{len(PROGRAMS) + len(OPERATORS) + 1 - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
