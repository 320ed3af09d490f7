# SPDX-License-Identifier: Apache-2.0
"""The nets of nets.c in PyTorch: those of the parity tests, and further ones that are written here, so that they
need no other package. Parameters have the shapes of Tessera's, and norms' weights are named so."""
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import architectures  # noqa: E402
import peer  # noqa: E402


# --- attention ------------------------------------------------------------------------------------
def attend(q, k, v, causal=False):
    """Returns the attention of heads (b,h,s,d), fused where this PyTorch has that."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v


def heads_of(x, heads):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def joined(y):
    return y.transpose(1, 2).flatten(2)


def fused_attention(self, x):
    q, k, v = (heads_of(t, self.heads) for t in self.c_attn(x).split(x.shape[2], 2))
    return self.c_proj(joined(attend(q, k, v, True)))


def fused_conv1d(self, x):
    y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
    return y.view(*x.shape[:-1], -1)


def use_fused():
    architectures.Conv1D.forward = fused_conv1d
    if hasattr(F, "scaled_dot_product_attention"):
        architectures.Attention.forward = fused_attention


class EncoderLayer(nn.Module):
    """A layer of a transformer's encoder, with its norms before or after each branch."""

    def __init__(self, width, heads, norm_first, eps):
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)

    def attention(self, x):
        return self.out(joined(attend(*(heads_of(t, self.heads) for t in self.qkv(x).chunk(3, 2)))))

    def inner(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.inner(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.inner(x))


class CausalBlock(nn.Module):
    """A block of tsr_transformer, whose queries, keys and values have weights of their own."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (heads_of(layer(y), self.heads) for layer in (self.q, self.k, self.v))
        x = x + self.proj(joined(attend(q, k, v, True)))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocab, positions, width, heads, layers):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.blocks = nn.Sequential(*(CausalBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tok_emb(ids) + self.pos_emb.weight[:ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Vit(nn.Module):
    def __init__(self, width=384, heads=6, layers=12, patches=196, classes=1000):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, patches + 1, width))
        self.layers = nn.Sequential(*(EncoderLayer(width, heads, True, 1e-6) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class Bert(nn.Module):
    def __init__(self, vocab=30522, width=768, heads=12, layers=12):
        super().__init__()
        self.words, self.positions, self.segments = (nn.Embedding(n, width) for n in (vocab, 512, 2))
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.Sequential(*(EncoderLayer(width, heads, False, 1e-12) for _ in range(layers)))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids):
        x = self.words(ids) + self.positions.weight[:ids.shape[1]] + self.segments.weight[:1]
        return self.head(torch.tanh(self.pooler(self.layers(self.norm(x))[:, 0])))


# --- images ---------------------------------------------------------------------------------------
class Bottleneck(nn.Module):
    def __init__(self, cin, inner, stride, first):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner)
        self.downsample = nn.Sequential()
        if first:
            self.downsample = nn.Sequential(nn.Conv2d(cin, 4 * inner, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * inner))

    def forward(self, x):
        y = nn.functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = nn.functional.relu(self.bn2(self.conv2(y)), inplace=True)
        return nn.functional.relu(self.bn3(self.conv3(y)) + self.downsample(x), inplace=True)


class ResNet50(nn.Sequential):
    """torchvision's resnet50, whose blocks have their stride in the 3x3 convolution."""

    def __init__(self, classes, width):
        layers, cin = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
                       nn.MaxPool2d(3, 2, 1)], width
        for i, depth in enumerate((3, 4, 6, 3)):
            for k in range(depth):
                layers.append(Bottleneck(cin, width << i, 2 if k == 0 and i else 1, k == 0))
                cin = 4 * (width << i)
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


def vgg16():
    layers, cin = [], 3
    for depth, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(depth):
            layers += [nn.Conv2d(cin, channels, 3, padding=1), nn.ReLU(True)]
            cin = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(cin * 49, 4096), nn.ReLU(True), nn.Linear(4096, 4096),
                         nn.ReLU(True), nn.Linear(4096, 1000))


def dcgan():
    layers, cin = [], 100
    for out in (512, 256, 128, 64):
        layers += [nn.ConvTranspose2d(cin, out, 4, 1 if cin == 100 else 2, 0 if cin == 100 else 1, bias=False),
                   nn.BatchNorm2d(out), nn.ReLU(True)]
        cin = out
    return nn.Sequential(*layers, nn.ConvTranspose2d(cin, 3, 4, 2, 1, bias=False), nn.Tanh())


def conv_norm(cin, out, kernel, stride, groups, act):
    layers = [nn.Conv2d(cin, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
    return layers + ([act] if act else [])


class UNet(nn.Module):
    def __init__(self, width=32, levels=4):
        super().__init__()
        def block(cin, out):  # noqa: E306
            return nn.Sequential(*conv_norm(cin, out, 3, 1, 1, nn.ReLU(True)), *conv_norm(out, out, 3, 1, 1, nn.ReLU(True)))
        sizes = [3] + [width << i for i in range(levels + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(c, c // 2, 2, 2) for c in sizes[:1:-1])
        self.blocks = nn.ModuleList(block(c, c // 2) for c in sizes[:1:-1])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        kept = []
        for block in self.down[:-1]:
            kept.append(block(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for up, block, before in zip(self.up, self.blocks, kept[::-1]):
            x = block(torch.cat((before, up(x)), 1))
        return self.head(x)


class Squeeze(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x):
        return x * self.second(F.silu(self.first(F.adaptive_avg_pool2d(x, 1)))).sigmoid()


class InvertedBlock(nn.Module):
    def __init__(self, cin, out, expand, kernel, stride):
        super().__init__()
        inner = cin * expand
        layers = conv_norm(cin, inner, 1, 1, 1, nn.SiLU(True)) if expand > 1 else []
        layers += [*conv_norm(inner, inner, kernel, stride, inner, nn.SiLU(True)), Squeeze(inner, cin // 4)]
        self.branch = nn.Sequential(*layers, *conv_norm(inner, out, 1, 1, 1, None))
        self.skip = stride == 1 and cin == out

    def forward(self, x):
        return x + self.branch(x) if self.skip else self.branch(x)


def efficientnet_b0():
    layers, cin = conv_norm(3, 32, 3, 2, 1, nn.SiLU(True)), 32
    for expand, kernel, stride, out, blocks in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
                                                (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):
        for i in range(blocks):
            layers.append(InvertedBlock(cin, out, expand, kernel, 1 if i else stride))
            cin = out
    return nn.Sequential(*layers, *conv_norm(cin, 1280, 1, 1, 1, nn.SiLU(True)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


class PixelNorm(nn.LayerNorm):
    """A layer norm of the channels of each pixel of (n,c,h,w)."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer_scale = nn.Parameter(torch.zeros(channels))
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.pixels = nn.Sequential(nn.LayerNorm(channels, 1e-6), nn.Linear(channels, 4 * channels), nn.GELU(),
                                    nn.Linear(4 * channels, channels))

    def forward(self, x):
        y = self.pixels(self.conv(x).permute(0, 2, 3, 1)) * self.layer_scale
        return x + y.permute(0, 3, 1, 2)


def convnext_t():
    layers, cin = [], 3
    for stage, depth in enumerate((3, 3, 9, 3)):
        channels = 96 << stage
        if stage:
            layers += [PixelNorm(cin, 1e-6), nn.Conv2d(cin, channels, 2, 2)]
        else:
            layers += [nn.Conv2d(cin, channels, 4, 4), PixelNorm(channels, 1e-6)]
        layers += [ConvNeXtBlock(channels) for _ in range(depth)]
        cin = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(cin, 1e-6), nn.Linear(cin, 1000))


# --- tables, products and single layers -----------------------------------------------------------
class Dlrm(nn.Module):
    def __init__(self, numbers=13, tables=26, rows=10000, width=64):
        super().__init__()
        def layers(sizes, last):  # noqa: E306
            steps = [[nn.Linear(a, b), nn.ReLU(True)] for a, b in zip(sizes, sizes[1:])]
            return nn.Sequential(*sum(steps, [])[:-1], last)
        self.lower = layers([numbers, 512, 256, width], nn.ReLU(True))
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.upper = layers([width + (tables + 1) * tables // 2, 512, 256, 1], nn.Sigmoid())
        self.register_buffer("pairs", torch.tensor([i * (tables + 1) + j for i in range(tables + 1) for j in range(i)]), False)

    def forward(self, x, ids):
        x = self.lower(x)
        rows = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = (rows @ rows.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.upper(torch.cat((x, pairs), 1))


class Product(nn.Module):
    def forward(self, x, y):
        return x.flatten(0, 1) @ y


class WeightProduct(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(k, n))

    def forward(self, x):
        return x.flatten(0, 1) @ self.weight


class Lstm(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.lstm, self.head = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


VOCAB, CLASSES, IMAGE = 256, 10, 3 * 32 * 32
NETS = {
    "mobilenet_v2": lambda: peer.MobileNetV2(CLASSES),
    "mobilenet_v2_cifar": lambda: peer.MobileNetV2(CLASSES, variant="cifar"),
    "mobilenet_v2_224": lambda: peer.MobileNetV2(1000),
    "resnet18_cifar": lambda: architectures.ResNet18(CLASSES, 64, True),
    "resnet18_224": lambda: architectures.ResNet18(1000, 64, False),
    "lenet": lambda: architectures.LeNet(CLASSES, 3, 0),
    "convnet": lambda: peer.ConvNet(CLASSES, 3, 32),
    "mlp": lambda: peer.Mlp(IMAGE, 1024, CLASSES),
    "gpt": lambda: architectures.Gpt(VOCAB, 256, 384, 6, 6),
    "gpt_2048": lambda: architectures.Gpt(VOCAB, 2048, 384, 6, 6),
    "lstm_lm": lambda: architectures.LstmLm(VOCAB, 256, 256, 2),
    "transformer": lambda: Transformer(VOCAB, 256, 256, 4, 4),
    "resnet50": lambda: ResNet50(1000, 64),
    "vgg16": vgg16,
    "efficientnet_b0": efficientnet_b0,
    "convnext_t": convnext_t,
    "dcgan": dcgan,
    "unet": UNet,
    "vit": Vit,
    "bert": Bert,
    "dlrm": Dlrm,
    "linear_f64": lambda: nn.Linear(512, 512),
    "conv_f64": lambda: nn.Conv2d(32, 64, 3, padding=1),
    "lstm_f64": lambda: Lstm(1, 51),
}


def make(name):
    """Returns the net of a name, in f32 and with PyTorch's initial values."""
    if name in NETS:
        return NETS[name]()
    k, n = map(int, name.split("x")[1:])
    return Product() if name.startswith("matmul_") else WeightProduct(k, n)
