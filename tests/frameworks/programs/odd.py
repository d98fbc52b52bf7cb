"""Training loops that are no plain one: odd.py gan|shared|critic|frozen|distill|rl|lengths|closure|embed|cut|processor|handmade|recurrent|by-hand|kept|kept-products|dropped|attack|penalty|forces|graph|autoencoder|seq2seq|pictures|loss-network. The ranges note what they do, and hold their shape."""

import random
import sys

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    LlavaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

CONFIG = sys.argv[2]
WIDTH = 512
torch.manual_seed(1)
random.seed(1)


def range_of(name, **shape):
    return torch.cuda.nvtx.range(" ".join([name, *(f"{k}={v}" for k, v in shape.items())]))


def language_model(layers):
    config = AutoConfig.from_pretrained(CONFIG)
    config.num_hidden_layers = layers
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()


def perceptron(layers, outputs):
    inside = [layer for _ in range(layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*inside, nn.Linear(WIDTH, outputs)).cuda()


def tokens(batch, length):
    return torch.randint(1000, (batch, length)).cuda()


def adversaries(critics, freeze=False):
    """A generator, and a critic that makes several steps for each of its. `freeze`: none trains while the other one does."""
    generator, critic = perceptron(3, WIDTH), perceptron(2, 1)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(40):
        with range_of("step", batch=64):
            generator.requires_grad_(not freeze)
            critic.requires_grad_(True)
            for _ in range(critics):
                (critic(torch.randn(64, WIDTH).cuda()).mean() - critic(generator(torch.randn(64, WIDTH).cuda()).detach()).mean()).backward()
                of_critic.step()
                of_critic.zero_grad()
            generator.requires_grad_(True)
            critic.requires_grad_(not freeze)
            critic(generator(torch.randn(64, WIDTH).cuda())).mean().neg().backward()
            of_generator.step()
            of_generator.zero_grad()


def shared():
    """One pass of the generator for both, and three backward passes, as in PyTorch's own DCGAN; now and then a picture for the log."""
    generator, critic = perceptron(3, WIDTH), perceptron(2, 1)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    fixed = torch.randn(32, WIDTH).cuda()
    for i in range(40):
        with range_of("step", batch=64):
            if i % 10 == 5:
                generator(fixed)
            critic.zero_grad()
            critic(torch.randn(64, WIDTH).cuda()).mean().backward()
            fake = generator(torch.randn(64, WIDTH).cuda())
            critic(fake.detach()).mean().neg().backward()
            of_critic.step()
            generator.zero_grad()
            critic(fake).mean().backward()
            of_generator.step()


def distill():
    """A teacher of twice as many layers, before each pass of the student."""
    teacher, student = language_model(4).eval(), language_model(2)
    optimizer = torch.optim.AdamW(student.parameters(), fused=True)
    for _ in range(20):
        ids = tokens(4, 128)
        with range_of("step", batch=4, seq_len=128):
            with torch.no_grad():
                wanted = teacher(input_ids=ids).logits
            got = student(input_ids=ids).logits
            (got.float().log_softmax(-1) - wanted.float().log_softmax(-1)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def rl():
    """Generation, a reference model and an update in each round."""
    policy, reference = language_model(2), language_model(2).eval()
    optimizer = torch.optim.AdamW(policy.parameters(), fused=True)

    def likelihood(model, ids):
        return model(input_ids=ids).logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])

    for _ in range(8):
        ids = tokens(4, 32)
        with range_of("step", batch=4, seq_len=48):
            policy.eval()
            with torch.no_grad():
                ids = policy.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, min_new_tokens=16, do_sample=True)
                before = likelihood(reference, ids)
            policy.train()
            (likelihood(policy, ids) - before).exp().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def lengths():
    """Another length in each step, and evaluations between them."""
    model = language_model(2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(30):
        batch, length = 1 + step % 3, 32 + 24 * (step * 7 % 5)
        with range_of("step", batch=batch, seq_len=length):
            ids = tokens(batch, length)
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    with range_of("eval", batch=4, seq_len=64):
                        model(input_ids=tokens(4, 64))
            model.train()


def closure():
    """The optimizer calls what computes its gradients, as L-BFGS needs it and Lightning does with any."""
    model = perceptron(3, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def passes():
        optimizer.zero_grad()
        loss = model(torch.randn(64, WIDTH).cuda()).mean()
        loss.backward()
        return loss

    for _ in range(30):
        with range_of("step", batch=64):
            optimizer.step(passes)


def embed():
    """An encoder without the head that its config names."""
    config = BertConfig(num_hidden_layers=4, architectures=["BertForMaskedLM"])
    with torch.device("cuda"):
        model = BertModel(config).bfloat16().eval()
    with torch.no_grad():
        for batch in range(1, 31):
            with range_of("forward", batch=batch, seq_len=64):
                model(tokens(batch, 64))


def cut():
    """A model that has fewer layers than its config says, and another head."""
    model = language_model(6)
    model.model.layers = model.model.layers[:2]
    model.lm_head = nn.Linear(model.config.hidden_size, 3000, bias=False, dtype=torch.bfloat16, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(20):
        with range_of("step", batch=4, seq_len=64):
            model(input_ids=tokens(4, 64)).logits.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


class Attention(nn.Module):
    """Queries, keys and values by modules, and attention by an object that is none, as diffusers has it."""

    class Processor:
        def __call__(self, query, key, value):
            causal = True  # of no meaning here
            del causal
            return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False)

    def __init__(self):
        super().__init__()
        self.parts, self.out, self.processor = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), self.Processor()

    def forward(self, x):
        parts = (y.unflatten(2, (8, -1)).transpose(1, 2) for y in self.parts(x).chunk(3, 2))
        return x + self.out(self.processor(*parts).transpose(1, 2).flatten(2))


def processor():
    model = nn.Sequential(*(Attention() for _ in range(3))).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for i in range(20):
        length = 256 if i % 2 else 192
        x = torch.randn(8, length, WIDTH).cuda().bfloat16()
        with range_of("step", batch=8, seq_len=length):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


class Handmade(nn.Module):
    """Attention as products of activations: by an operator, in a function of torch, and by PyTorch's own module for those that ask for weights."""

    def __init__(self):
        super().__init__()
        self.words, self.parts = nn.Embedding(1000, WIDTH), nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(3))
        self.outs, self.attention = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)), nn.MultiheadAttention(WIDTH, 8, batch_first=True)

    def attend(self, i, query, key, value):
        if i == 0:
            weights = (query @ key.transpose(-2, -1)) * query.shape[-1] ** -0.5
            weights = weights.masked_fill(torch.ones_like(weights[0, 0]).triu(1).bool(), float("-inf"))
            return weights.softmax(-1) @ value
        if i == 1:
            return torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", query, key).softmax(-1), value)
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(query, key, value)

    def forward(self, ids):
        x = self.words(ids)
        for i, (parts, out) in enumerate(zip(self.parts, self.outs)):
            query, key, value = (y.unflatten(2, (8, -1)).transpose(1, 2) for y in parts(x).chunk(3, 2))
            x = x + out(self.attend(i, query, key, value).transpose(1, 2).flatten(2))
        x = x + self.attention(x, x, x)[0]
        return x @ self.words.weight.T


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 384, num_layers=2, bidirectional=True, batch_first=True, proj_size=128)
        self.gru, self.cell, self.out = nn.GRU(256, 256), nn.LSTMCell(256, 128), nn.Linear(128, 10)

    def forward(self, x):
        x, _ = self.lstm(x)
        x, _ = self.gru(x.transpose(0, 1))
        state = None
        for part in x.unbind(0):
            state = self.cell(part, state)
        return self.out(state[0])


def train(model, given):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for i in range(16):
        length = 64 if i % 2 else 48
        with range_of("step", batch=8, seq_len=length):
            model(given(length)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for _ in range(6):
            with range_of("eval", batch=8, seq_len=32):
                model(given(32))


def handmade():
    train(Handmade().cuda().bfloat16(), lambda length: tokens(8, length))


def recurrent():
    torch.backends.cudnn.enabled = False  # it cannot start on the simulated GPU
    train(Recurrent().cuda(), lambda length: torch.randn(8, length, WIDTH).cuda())


def by_hand():
    """No optimizer: the program changes the weights itself, after the gradients of two batches."""
    model = perceptron(3, WIDTH)
    for epoch in range(3):
        model.train()
        for _ in range(10):
            with range_of("step", batch=64):
                model.zero_grad()
                for _ in range(2):
                    model(torch.randn(64, WIDTH).cuda()).square().mean().backward()
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.add_(weight.grad, alpha=-0.1)
        model.eval()
        with torch.no_grad():
            for _ in range(4):
                with range_of("eval", batch=64):
                    model(torch.randn(64, WIDTH).cuda())


class Convolution(nn.Module):
    """Of a graph: what is next to a node counts. Nothing asks for the gradient of the edges."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x, edges):
        return edges @ (x @ self.weight)


class Citations(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Convolution(WIDTH, WIDTH), Convolution(WIDTH, 40)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


def graph():
    model = Citations().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x, edges = torch.randn(1000, WIDTH, device="cuda"), torch.randn(1000, 1000, device="cuda")
    for _ in range(16):
        model.train()
        with range_of("step", batch=1000):
            optimizer.zero_grad()
            model(x, edges).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad(), range_of("eval", batch=1000):
            model(x, edges)


class Autoencoder(nn.Module):
    """Its steps are methods that call both parts, as in the first example of many a trainer."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = perceptron(2, 32), nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()

    def training_step(self, x):
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def validation_step(self, x):
        code = self.encoder(x)
        return nn.functional.mse_loss(self.decoder(code), x)


def autoencoder():
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model.train()
        for _ in range(6):
            with range_of("step", batch=64):
                for _ in range(2):
                    model.training_step(torch.randn(64, WIDTH).cuda()).backward()
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for _ in range(4):
                with range_of("eval", batch=64):
                    model.validation_step(torch.randn(64, WIDTH).cuda())


def attack():
    """Each picture is changed by its own gradient before the step, in which nothing computes those of the weights."""
    model = perceptron(3, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        with range_of("step", batch=64):
            given, change = torch.randn(64, WIDTH).cuda(), torch.zeros(64, WIDTH, device="cuda")
            for _ in range(3):
                change.requires_grad_()
                (gradient,) = torch.autograd.grad(model(given + change).square().mean(), change)
                change = (change + gradient.sign()).detach()
            model(given + change).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def penalty():
    """A critic whose gradient by its input is a part of its loss."""
    critic = perceptron(3, 1)
    optimizer = torch.optim.Adam(critic.parameters())
    for _ in range(30):
        with range_of("step", batch=64):
            made, mixed = torch.randn(64, WIDTH).cuda(), torch.randn(64, WIDTH).cuda().requires_grad_()
            gradient = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
            (critic(made).mean() + (gradient.norm(dim=1) - 1).square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()


class Potential(nn.Module):
    """An energy, and forces as its gradient by the places. Its weights lie in a dictionary."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterDict({"in": nn.Parameter(torch.randn(16, WIDTH)), "out": nn.Parameter(torch.randn(WIDTH, 1))})

    def forward(self, places):
        apart = (places.unsqueeze(1) - places.unsqueeze(2)).norm(dim=-1, keepdim=True)
        shells = torch.exp(-((apart - torch.linspace(0, 4, 16, device="cuda")) ** 2))
        energy = (torch.tanh(shells @ self.weights["in"]).sum(2) @ self.weights["out"]).sum()
        return energy, torch.autograd.grad(energy, places, create_graph=self.training)[0]


def forces():
    model = Potential().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        for _ in range(8):
            with range_of("step", batch=8):
                energy, gradient = model(torch.randn(8, 20, 3).cuda().requires_grad_())
                (energy + gradient.square().mean()).backward()
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        for _ in range(2):
            with range_of("eval", batch=8):
                model(torch.randn(8, 20, 3).cuda().requires_grad_())
        model.train()


class Kept(nn.Module):
    """Attention to all tokens so far, which it keeps itself, as the first implementations of Llama do."""

    def __init__(self, fused):
        super().__init__()
        self.parts, self.out, self.fused = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False), fused
        kept = torch.zeros(4, 512, 8, WIDTH // 8, device="cuda", dtype=torch.bfloat16)
        self.keys, self.values = kept, kept.clone()

    def forward(self, x, start):
        batch, length = x.shape[:2]
        query, key, value = (part.view(batch, length, 8, -1) for part in self.parts(x).chunk(3, -1))
        self.keys[:batch, start : start + length] = key
        self.values[:batch, start : start + length] = value
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(
                query.transpose(1, 2),
                self.keys[:batch, : start + length].transpose(1, 2),
                self.values[:batch, : start + length].transpose(1, 2),
                is_causal=length > 1,
            )
        else:
            keys, values = (kept[:batch, : start + length].transpose(1, 2) for kept in (self.keys, self.values))
            y = torch.matmul((query.transpose(1, 2) @ keys.mT).softmax(-1), values)
        return x + self.out(y.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, WIDTH), nn.Linear(WIDTH, 1000, bias=False)
        self.layers = nn.ModuleList(Kept(fused) for _ in range(4))

    def forward(self, words, start):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x, start)
        return self.head(x[:, -1:])


@torch.inference_mode()
def kept(fused):
    """Nothing that a pass is given says how many keys there are. The program calls forward() itself."""
    model = Decoder(fused).cuda().bfloat16().eval()
    for length in (48, 96, 48):
        words, start = tokens(4, length), 0
        for _ in range(40):
            with range_of("decode" if start else "prefill", batch=4, seq_len=words.shape[1], context=start):
                model.forward(words, start)
            start += words.shape[1]
            words = words[:, :1]


class Dropped(nn.Module):
    """Leaves out each layer now and then, while it is trained."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(perceptron(1, WIDTH) for _ in range(6))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            if not self.training or random.random() > 0.3:
                x = x + layer(x) @ x.mT @ x
        return self.out(x)


def dropped():
    model = Dropped().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for i in range(40):
        with range_of("step", batch=4):
            model.train()(torch.randn(4, 32, WIDTH).cuda()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if i % 10 == 9:
            with range_of("eval", batch=4), torch.no_grad():
                model.eval()(torch.randn(4, 32, WIDTH).cuda())


def seq2seq():
    """A config does not say how many tokens the encoder reads. While the decoder generates, its encoder does not run."""
    config = T5Config(vocab_size=1000, d_model=WIDTH, d_kv=64, d_ff=1024, num_layers=2, num_heads=8, decoder_start_token_id=0)
    with torch.device("cuda"):
        model = T5ForConditionalGeneration(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(10):
        with range_of("step", batch=4, encoder=64, new=32, passes=3):
            model(input_ids=tokens(4, 64), labels=tokens(4, 32)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            with range_of("eval", batch=4, encoder=64):
                read = model.encoder(tokens(4, 64))
            cache = None
            for context in (0, *range(4, 16)):
                new = 1 if context else 4
                with range_of("decode" if context else "prefill", batch=4, read=64, new=new, context=context):
                    cache = model(encoder_outputs=read, decoder_input_ids=tokens(4, new), past_key_values=cache, use_cache=True).past_key_values


class Pictures(nn.Module):
    """The config of a model that sees: a pass's shape does not say how many pictures it was given."""

    def __init__(self):
        super().__init__()
        self.config = LlavaConfig()
        self.words, self.tower, self.out = nn.Embedding(1000, WIDTH), nn.Linear(768, WIDTH), nn.Linear(WIDTH, 1000)

    def forward(self, input_ids, pixel_values=None):
        x = self.words(input_ids)
        if pixel_values is not None:
            x = torch.cat((self.tower(pixel_values), x), 1)
        return self.out(x)


def pictures():
    model = Pictures().cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for i in range(20):
        pixels = torch.randn(4, 64, 768).cuda() if i % 3 else None
        with range_of("step", batch=4, seq_len=128):
            model(input_ids=tokens(4, 128), pixel_values=pixels).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def loss_network():
    """A frozen network measures what another one makes: gradients go through it, and it also looks at what needs none."""
    judge, maker = perceptron(2, 64).eval(), perceptron(2, WIDTH)
    for parameter in judge.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.Adam(maker.parameters())
    for _ in range(20):
        x = torch.randn(64, WIDTH).cuda()
        with range_of("step", batch=64):
            wanted = judge(x)
            (judge(maker(x)) - wanted).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


{
    "gan": lambda: adversaries(1),
    "shared": shared,
    "critic": lambda: adversaries(3),
    "frozen": lambda: adversaries(2, freeze=True),
    "distill": distill,
    "rl": rl,
    "lengths": lengths,
    "closure": closure,
    "embed": embed,
    "cut": cut,
    "processor": processor,
    "handmade": handmade,
    "recurrent": recurrent,
    "by-hand": by_hand,
    "kept": lambda: kept(fused=True),
    "kept-products": lambda: kept(fused=False),
    "dropped": dropped,
    "attack": attack,
    "penalty": penalty,
    "forces": forces,
    "graph": graph,
    "autoencoder": autoencoder,
    "seq2seq": seq2seq,
    "pictures": pictures,
    "loss-network": loss_network,
}[sys.argv[1]]()
torch.cuda.synchronize()
print("done")
