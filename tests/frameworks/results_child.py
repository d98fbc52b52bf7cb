"""Passes whose results are thrown away, and gradients without backward(): the facts that the interpreter's part reports. On the CPU.

Prints a line for each program, and exits with 1 where a fact is missing or is too many.
"""

import collections
import dataclasses
import sys

import torch
from counts_child import PASS_BEGIN, PASS_WORK, facts, listen
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

BACKWARD, UPDATE, MORE_WORK, DROPPED = 2, 4, 11, 13  # where they begin
WIDTH, STEPS = 8, 4
PASS, STEP = [PASS_BEGIN], [PASS_BEGIN, BACKWARD, UPDATE]


@dataclasses.dataclass
class Output:
    states: torch.Tensor


class Model(nn.Module):
    """Returns what it computes within `made`."""

    def __init__(self, made=lambda x: x):
        super().__init__()
        self.layer, self.made = nn.Linear(WIDTH, WIDTH), made

    def forward(self, x):
        return self.made(self.layer(x))


def batch():
    return torch.randn(4, WIDTH)


def trained(model, loss_of=lambda result: result.sum(), before=lambda i: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for i in range(STEPS):
        before(i)
        loss = loss_of(model(batch()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def kept():
    trained(Model())


def kept_in_a_dictionary():
    trained(Model(lambda x: {"states": [x], "more": None}), lambda result: result["states"][0].sum())


def kept_in_another_class():
    trained(Model(Output), lambda result: result.states.sum())


def second_result_alone():
    trained(Model(lambda x: (x.mean(), x * 2)), lambda result: result[1].sum())


def left_out():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for i in range(2 * STEPS):
        loss = model(batch()).sum()
        if i % 2 == 0:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def actions():
    """The best action by the model that is trained, as double Q-learning chooses it."""
    model = Model()
    trained(model, before=lambda i: model(batch()).argmax(-1))


def target():
    """A target by another model, whose gradients nothing stops."""
    other = Model()
    trained(Model(), before=lambda i: other(batch()).detach())


def minimised(model, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulated():
    """Both results are waited for."""
    model = Model()
    minimised(model, lambda: model(batch()).sum() + model(batch()).mean())


def gradients_alone():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for i in range(STEPS):
        given = model.parameters() if i % 2 else list(model.parameters())
        for parameter, gradient in zip(model.parameters(), torch.autograd.grad(model(batch()).sum(), given), strict=True):
            parameter.grad = gradient
        optimizer.step()


def gradients_of_a_picture():
    """An attack on a picture is no backward pass of a step; autograd's graph says its FLOP."""

    def attack(_):
        x = batch().requires_grad_()
        torch.autograd.grad(model(x).sum(), x)

    model = Model()
    trained(model, before=attack)


class Counter(TorchDispatchMode):
    """FLOP of what runs, by PyTorch's own formulas."""

    flop = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        formula = flop_registry.get(function.overloadpacket)
        if formula is not None:
            self.flop += formula(*args, **(kwargs or {}), out_val=result)
        return result


def penalty(wanted=lambda x: x, powers=1, alike=1):
    """Gradients have gradients; `powers`: and those have some; `alike`: several are computed that have as many FLOP."""
    model = Model(torch.tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        with Counter() as counter:
            x = batch().requires_grad_()
            value = model(x)
            for _ in range(powers):
                found = [torch.autograd.grad(value.sum(), wanted(x), create_graph=True)[0] for _ in range(alike)]
                value = sum(found).tanh()
            value.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return counter.flop


def gradients_twice():
    return penalty(lambda x: (x,), powers=2)


def many_gradients_twice():
    return penalty(powers=2, alike=5)


class Forces(nn.Module):
    """Computes the gradients of a value by what it was given."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        value = self.last(self.layer(x).tanh()).sum()
        return value, torch.autograd.grad(value, x, create_graph=self.training)[0]


def forces():
    model = Forces()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        with Counter() as counter:
            value, gradients = model(batch().requires_grad_())
            (value + gradients.square().sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return counter.flop


def forces_in_evaluation():
    model = Forces().eval()
    for _ in range(STEPS):
        with Counter() as counter:
            model(batch().requires_grad_())
    return counter.flop


def flop_of_step():
    """Of each pass, forward and backward, and of gradients beside them, as far as they are known; of one step."""
    work = {fact[3]: fact[4:] for fact in facts if fact[0] == PASS_WORK}
    flop, passes = 0, []
    for kind, mode, _, model, *_ in facts:
        if kind == PASS_BEGIN:
            passes.append(model)
            flop += work[model][0]
        elif kind == DROPPED:
            passes.pop()
        elif kind == MORE_WORK and mode == 0:
            flop += work[model][0]
        elif kind == BACKWARD:
            flop += sum(work[model][1] for model in passes)
            passes.clear()
    return flop / STEPS


@torch.no_grad()
def change(model, gradients=None, clear=None):
    for parameter, gradient in zip(model.parameters(), gradients or [p.grad for p in model.parameters()], strict=True):
        parameter -= 0.1 * gradient
        if clear == "with zeros":
            gradient.zero_()
        elif clear:
            parameter.grad = None


def functional_loss(model):
    return lambda weights, x: torch.func.functional_call(model, weights, (x,)).sum()


def by_hand(way):
    """The program changes the weights itself, and calls no method that says so."""
    model = Model()
    weights = {name: one.detach() for name, one in model.named_parameters()}
    for _ in range(STEPS):
        if way == "functional":  # not those of the model
            gradients = torch.func.grad(functional_loss(model))(weights, batch())
            weights = {name: one - 0.1 * gradients[name] for name, one in weights.items()}
            continue
        for _ in range(2 if "batches" in way else 1):
            loss = model(batch()).sum()
            if way == "gradients alone":
                change(model, torch.autograd.grad(loss, list(model.parameters())))
            else:
                loss.backward()
        if way == "nothing":  # the gradients of all batches
            continue
        if way != "gradients alone":
            change(model, clear=way)
    with torch.no_grad():
        model(batch())


# Ways, passes that train, backward passes and updates.
BY_HAND = {
    "nothing": (STEPS, STEPS, 0),
    "none": (STEPS, STEPS, STEPS),
    "with zeros": (STEPS, STEPS, STEPS),
    "none, two batches": (2 * STEPS, 2 * STEPS, STEPS),
    "gradients alone": (STEPS, STEPS, STEPS),
    "functional": (STEPS, STEPS, STEPS),
}


class Weighed(nn.Module):
    """A loss with weights of classes, and with weights of tasks that train."""

    def __init__(self):
        super().__init__()
        self.register_buffer("classes", torch.ones(WIDTH))
        self.tasks = nn.Parameter(torch.zeros(2))

    def forward(self, result):
        return (result * self.classes * torch.exp(-self.tasks[0])).sum() + self.tasks.sum()


def loss_with_weights():
    trained(Model(), Weighed())


class Around(nn.Module):
    """A loss that calls the model, and does not hold it as a module."""

    def __init__(self, model):
        super().__init__()
        self.__dict__["model"] = model
        self.register_buffer("weights", torch.ones(WIDTH))

    def forward(self, x):
        return (self.model(x) * self.weights).sum()


def loss_around_a_model():
    model = Model()
    loss = Around(model)
    minimised(model, lambda: loss(batch()))


def gradients_of_each():
    """Of what torch.func maps, FLOP of gradients are not known."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        weights = {name: one.detach() for name, one in model.named_parameters()}
        found = torch.func.vmap(torch.func.grad(functional_loss(model)), in_dims=(None, 0))(weights, batch())
        for name, one in model.named_parameters():
            one.grad = found[name].mean(0)
        optimizer.step()
    assert [fact[4:] for fact in facts if fact[0] == PASS_WORK] == [(-1, -1)]


class Words(nn.Module):
    """Takes what a tokenizer makes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch):
        batches = batch if isinstance(batch, list) else [batch]
        return sum(self.layer(one["input_ids"].unsqueeze(-1).expand(-1, -1, WIDTH).float()).sum() for one in batches)


class Tokenized(collections.UserDict):
    pass


def shapes_of_batches():
    """\return whether the facts have (batch, seq_len, tokens) of each"""
    model = Words()
    one, other = ({"input_ids": torch.ones(2, size, dtype=torch.int64), "length": size} for size in (5, 7))
    given = [one, other, Tokenized(one), Tokenized(other), [one, Tokenized(other)]]
    facts.clear()
    for batches in given:
        model(batches).backward()
    found = [(fact[4], fact[5], fact[7]) for fact in facts if fact[0] == PASS_BEGIN]
    flop = [fact[4] for fact in facts if fact[0] == PASS_WORK]
    of_one = 2 * 2 * WIDTH * WIDTH
    return found == [(2, 5, -1), (2, 7, -1)] * 2 + [(-1, -1, 24)] and flop == [of_one * 5, of_one * 7, of_one * 12]


PROGRAMS = {
    kept: STEP,
    loss_with_weights: STEP,
    loss_around_a_model: STEP,
    kept_in_a_dictionary: STEP,
    kept_in_another_class: STEP,
    second_result_alone: STEP,
    left_out: PASS + PASS + [DROPPED, BACKWARD, UPDATE],
    actions: PASS + [DROPPED] + STEP,
    target: PASS + [DROPPED] + STEP,
    accumulated: PASS + STEP,
    gradients_alone: STEP,
    gradients_of_each: STEP,
    gradients_of_a_picture: PASS + [MORE_WORK, DROPPED] + STEP,
    penalty: PASS + [MORE_WORK, DROPPED, BACKWARD, MORE_WORK, MORE_WORK, UPDATE],
    gradients_twice: PASS + [MORE_WORK, MORE_WORK, DROPPED, BACKWARD, MORE_WORK, MORE_WORK, UPDATE],
    many_gradients_twice: PASS + 10 * [MORE_WORK] + [DROPPED, BACKWARD, MORE_WORK, MORE_WORK, UPDATE],
    forces: STEP,
    forces_in_evaluation: PASS,
}


def main():
    listen()
    wrong = 0
    for way, wanted in BY_HAND.items():  # first, since there are no optimizers yet
        facts.clear()
        by_hand(way)
        found = [fact[0] for fact in facts]
        found = (found.count(PASS_BEGIN) - 1, found.count(BACKWARD), found.count(UPDATE))
        wrong += found != wanted
        print("ok  " if found == wanted else f"FAIL {found}, wanted {wanted}", "by hand:", way)
    good = shapes_of_batches()
    wrong += not good
    print("ok  " if good else f"FAIL {facts}", "shapes of batches")
    for program, wanted in PROGRAMS.items():
        facts.clear()
        flop = program()
        found = [fact[0] for fact in facts if fact[0] in (*STEP, MORE_WORK, DROPPED)]
        good = found == wanted * STEPS
        if program is gradients_of_a_picture:  # not those of the weights
            of_one = [fact[4:] for fact in facts if fact[0] == PASS_WORK and fact[3] >= 1 << 20]
            good = good and of_one == [(2 * 4 * WIDTH * WIDTH,) * 2] * STEPS
        if flop is not None:  # as PyTorch counts them
            good = good and flop_of_step() == flop
        wrong += not good
        print("ok  " if good else f"FAIL {found}, wanted {wanted * STEPS}", program.__name__.replace("_", " "))
    print(f"{len(BY_HAND) + 1 + len(PROGRAMS) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
