"""Modules as users write them, none with the importer in mind: each trains as in PyTorch, with the comparison of
test_exported.py, or is refused with a message that names the operator and the user's line."""
import inspect
import math

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("torchvision", reason="needs torchvision")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from test_exported import compare_inputs, refusal  # noqa: E402

BATCH = 3


class UNet(nn.Module):
    """Skips by cat, transposed convolutions, padding to odd sizes."""

    class Double(nn.Module):
        def __init__(self, cin, cout):
            super().__init__()
            self.double_conv = nn.Sequential(
                nn.Conv2d(cin, cout, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
                nn.Conv2d(cout, cout, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

        def forward(self, x):
            return self.double_conv(x)

    def __init__(self, n_channels=3, n_classes=2):
        super().__init__()
        self.inc = self.Double(n_channels, 4)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), self.Double(4, 8))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), self.Double(8, 16))
        self.up1 = nn.ConvTranspose2d(16, 8, kernel_size=2, stride=2)
        self.conv1 = self.Double(16, 8)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.conv2 = self.Double(12, 4)
        self.outc = nn.Conv2d(4, n_classes, kernel_size=1)

    @staticmethod
    def merge(x, skip):
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return torch.cat([skip, x], dim=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.conv1(self.merge(self.up1(x3), x2))
        x = self.conv2(self.merge(self.up2(x), x1))
        return self.outc(x)


class SEResNeXt(nn.Module):
    """Grouped convolutions, squeeze and excite with a view, in-place residuals."""

    class SEBlock(nn.Module):
        def __init__(self, channel, reduction=4):
            super().__init__()
            self.avg_pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(nn.Linear(channel, channel // reduction, bias=False), nn.ReLU(inplace=True),
                                    nn.Linear(channel // reduction, channel, bias=False), nn.Sigmoid())

        def forward(self, x):
            b, c, _, _ = x.size()
            y = self.avg_pool(x).view(b, c)
            y = self.fc(y).view(b, c, 1, 1)
            return x * y.expand_as(x)

    class Bottleneck(nn.Module):
        def __init__(self, cin, cout, stride=1, cardinality=4):
            super().__init__()
            self.conv1 = nn.Conv2d(cin, cout, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(cout)
            self.conv2 = nn.Conv2d(cout, cout, 3, stride, 1, groups=cardinality, bias=False)
            self.bn2 = nn.BatchNorm2d(cout)
            self.se = SEResNeXt.SEBlock(cout)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = nn.Sequential(nn.AvgPool2d(stride, ceil_mode=True), nn.Conv2d(cin, cout, 1)) if stride > 1 else None

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.se(self.bn2(self.conv2(out)))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect")
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self.Bottleneck(8, 8)
        self.layer2 = self.Bottleneck(8, 16, stride=2)
        self.fc = nn.Linear(16, 10)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")

    def forward(self, x):
        x = self.layer2(self.layer1(self.maxpool(self.conv1(x))))
        return self.fc(x.mean([-2, -1]))


class GPT(nn.Module):
    """Attention by hand with a buffer of the mask, positions from arange, the head tied to the embedding."""

    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.n_head = n_head
            self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
            self.c_attn = nn.Linear(n_embd, 3 * n_embd)
            self.c_proj = nn.Linear(n_embd, n_embd)
            self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(n_embd, 4 * n_embd), c_proj=nn.Linear(4 * n_embd, n_embd)))
            self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

        def attention(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(C, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)

        def forward(self, x):
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))

    def __init__(self, vocab=17, block_size=8, n_embd=12):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, n_embd), wpe=nn.Embedding(block_size, n_embd), drop=nn.Dropout(0.1),
            h=nn.ModuleList([self.Block(n_embd, 3, block_size) for _ in range(2)]), ln_f=nn.LayerNorm(n_embd)))
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class LSTMClassifier(nn.Module):
    """The last states of both directions of two layers."""

    def __init__(self, vocab=20):
        super().__init__()
        self.embedding = nn.Embedding(vocab, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(10, 10)

    def forward(self, text):
        embedded = self.embedding(text)
        output, (hidden, cell) = self.lstm(embedded)
        hidden = torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)
        return self.fc(torch.tanh(hidden))


class GRURegressor(nn.Module):
    """Time first, a start state that is learned, attention pooling over time."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.gru = nn.GRU(4, 6)
        self.h0 = nn.Parameter(torch.randn(1, 1, 6) * 0.1)
        self.score = nn.Linear(6, 1, bias=False)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = self.norm(x.transpose(1, 2)).permute(2, 0, 1)
        out, _ = self.gru(x, self.h0.expand(-1, x.shape[1], -1).contiguous())
        weights = torch.softmax(self.score(out), dim=0)
        return self.out((weights * out).sum(0))


class MLPMixer(nn.Module):
    def __init__(self, dim=8, patches=16):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, stride=4)
        self.blocks = nn.ModuleList()
        for _ in range(2):
            self.blocks.append(nn.ModuleList([
                nn.LayerNorm(dim), nn.Sequential(nn.Linear(patches, 12), nn.GELU(), nn.Linear(12, patches)),
                nn.LayerNorm(dim, eps=1e-6), nn.Sequential(nn.Linear(dim, 12), nn.GELU(), nn.Linear(12, dim))]))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).permute(0, 2, 1)
        for n1, tokens, n2, channels in self.blocks:
            x = x + tokens(n1(x).mT).mT
            x = x + channels(n2(x))
        return self.head(self.norm(x).mean(dim=1))


class Autoencoder(nn.Module):
    """Its output is an image; Unflatten, transposed convolutions with output padding."""

    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(4, 8, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(8 * 3 * 3, latent))
        self.decoder = nn.Sequential(
            nn.Linear(latent, 8 * 3 * 3), nn.ELU(), nn.Unflatten(1, (8, 3, 3)),
            nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1), nn.SELU(),
            nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1, dilation=1), nn.Sigmoid())

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z)


class TwoInputs(nn.Module):
    """An image and a row; features are shifted and scaled by the row (FiLM), then a bilinear layer."""

    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.GroupNorm(2, 6), nn.SiLU())
        self.film = nn.Linear(5, 12)
        self.meta = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
        self.bilinear = nn.Bilinear(6, 4, 8)
        self.fc = nn.Linear(8 + 4, 10)

    def forward(self, image, meta):
        gamma, beta = self.film(meta).chunk(2, dim=-1)
        x = self.cnn(image) * (1 + gamma[:, :, None, None]) + beta.unsqueeze(-1).unsqueeze(-1)
        x = F.adaptive_max_pool2d(x, 1).squeeze(-1).squeeze(-1)
        m = self.meta(meta)
        return self.fc(torch.cat((F.relu6(self.bilinear(x, m)), m), 1))


class ViT(nn.Module):
    """nn.MultiheadAttention and nn.TransformerEncoderLayer, a class token, sine positions as a buffer."""

    def __init__(self, dim=8, patch=4, size=16):
        super().__init__()
        self.patch = patch
        n = (size // patch) ** 2 + 1
        pe = torch.zeros(n, dim)
        position = torch.arange(n).unsqueeze(1)
        div = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div), torch.cos(position * div)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)
        self.to_patch = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.trunc_normal_(self.cls, std=0.02)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 16, 0.1, activation="gelu", batch_first=True, norm_first=True)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, img):
        B, C, H, W = img.shape
        p = self.patch
        x = img.reshape(B, C, H // p, p, W // p, p).permute(0, 2, 4, 3, 5, 1).reshape(B, -1, p * p * C)
        x = torch.cat([self.cls.repeat(B, 1, 1), self.to_patch(x)], dim=1) + self.pe
        x = self.layer(x)
        y, _ = self.attn(x[:, :1], x, x, need_weights=False)
        return self.head(self.norm(y[:, 0] + x[:, 0]))


class TCN(nn.Module):
    """Dilated causal 1-D convolutions under weight_norm, cut at the end."""

    class Temporal(nn.Module):
        def __init__(self, cin, cout, dilation):
            super().__init__()
            self.pad = 2 * dilation
            self.conv = nn.utils.parametrizations.weight_norm(
                nn.Conv1d(cin, cout, 3, padding=self.pad, dilation=dilation))
            self.down = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

        def forward(self, x):
            out = self.conv(x)[:, :, :-self.pad].contiguous()
            return F.relu(F.relu(out) + self.down(x))

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(*[self.Temporal(3 if i == 0 else 6, 6, 2 ** i) for i in range(3)])
        self.linear = nn.Linear(6, 10)

    def forward(self, x):
        return self.linear(self.network(x)[:, :, -1])


class WeightStandardized(nn.Module):
    """A subclass of Conv2d that normalizes its weight, GroupNorm, blurred pooling with a buffer."""

    class WSConv2d(nn.Conv2d):
        def forward(self, x):
            weight = self.weight
            weight = weight - weight.mean(dim=(1, 2, 3), keepdim=True)
            std = weight.view(weight.size(0), -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
            return F.conv2d(x, weight / std.expand_as(weight), self.bias, self.stride, self.padding, self.dilation,
                            self.groups)

    def __init__(self):
        super().__init__()
        self.conv1 = self.WSConv2d(3, 8, 3, padding=1)
        self.gn1 = nn.GroupNorm(4, 8)
        blur = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("filt", (blur[:, None] * blur[None, :] / 16).repeat(8, 1, 1, 1))
        self.conv2 = self.WSConv2d(8, 8, 3, padding=1, groups=2, bias=False)
        self.gn2 = nn.GroupNorm(1, 8)
        self.alpha = nn.Parameter(torch.tensor(0.2))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = F.silu(self.gn1(self.conv1(x)))
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), self.filt, stride=2, groups=x.shape[1])
        x = x + self.alpha * F.softplus(self.gn2(self.conv2(x)))
        return self.fc(x.flatten(2).logsumexp(-1))


class SuperResolution(nn.Module):
    """Pixel shuffle, PReLU, and a skip enlarged by F.interpolate."""

    def __init__(self, scale=2):
        super().__init__()
        self.scale = scale
        self.head = nn.Conv2d(1, 6, 5, padding=2)
        self.act = nn.PReLU(num_parameters=6)
        self.body = nn.Sequential(nn.Conv2d(6, 6, 3, padding=2, dilation=2), nn.PReLU(), nn.InstanceNorm2d(6, affine=True))
        self.tail = nn.Sequential(nn.Conv2d(6, scale ** 2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        h = self.act(self.head(x))
        h = h + self.body(h) * 0.1
        out = self.tail(h)
        out += F.interpolate(x, scale_factor=self.scale, mode="nearest")
        return out.clamp(-2.0, 2.0)


class GatedText(nn.Module):
    """Kim's text CNN with GLUs: windows of several widths, the largest of each."""

    def __init__(self, vocab=30, dim=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.scale = dim ** 0.5
        self.convs = nn.ModuleList([nn.Conv1d(dim, 8, k) for k in (2, 3, 4)])
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(12, 10)

    def forward(self, ids):
        x = self.emb(ids).permute(0, 2, 1) * self.scale
        pooled = []
        for conv in self.convs:
            c = F.glu(conv(x), dim=1)
            pooled.append(F.max_pool1d(c, c.size(2)).squeeze(2))
        mask = (ids != 0).float().mean(1, keepdim=True)
        return self.fc(self.dropout(torch.cat(pooled, 1)) * mask)


class EinsumTransformer(nn.Module):
    """Einsum attention with relative biases, RMSNorm by hand, rotary positions, SwiGLU, a learned temperature."""

    class RMSNorm(nn.Module):
        def __init__(self, dim, eps=1e-6):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    def __init__(self, dim=8, heads=2, length=6):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.inp = nn.Linear(3, dim)
        self.norm1, self.norm2 = self.RMSNorm(dim), nn.RMSNorm(dim)
        self.wq, self.wkv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.wo = nn.Parameter(torch.randn(heads, self.hd, dim) * 0.2)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1) * math.log(2))
        self.rel = nn.Parameter(torch.randn(2 * length - 1, heads) * 0.1)
        i = torch.arange(length)
        self.register_buffer("rel_index", i[:, None] - i[None, :] + length - 1)
        freq = torch.outer(i.float(), 1.0 / (100 ** (torch.arange(0, self.hd, 2).float() / self.hd)))
        self.register_buffer("cos", freq.cos().repeat(1, 2))
        self.register_buffer("sin", freq.sin().repeat(1, 2))
        self.w1, self.w2, self.w3 = nn.Linear(dim, 12), nn.Linear(12, dim), nn.Linear(dim, 12)
        self.out = nn.Linear(dim, 10)

    def rotate(self, x):
        a, b = x.chunk(2, dim=-1)
        return x * self.cos[:, None] + torch.cat((-b, a), dim=-1) * self.sin[:, None]

    def forward(self, x):
        x = self.inp(x)
        h = self.norm1(x)
        b, n, d = h.shape
        q = self.rotate(self.wq(h).view(b, n, self.heads, -1))
        k, v = self.wkv(h).reshape(b, n, 2, self.heads, self.hd).unbind(2)
        k = self.rotate(k)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.temperature.exp() / self.hd ** 0.5
        scores = scores + self.rel[self.rel_index].permute(2, 0, 1)
        scores = scores - scores.amax(-1, keepdim=True).detach()
        p = scores.exp()
        p = p / p.sum(-1, keepdim=True)
        x = x + torch.einsum("bhij,bjhd,hde->bie", p, v, self.wo)
        h = self.norm2(x)
        x = x + self.w2(F.silu(self.w1(h)) * self.w3(h))
        return self.out(x[:, -1, :])


class Prototypes(nn.Module):
    """Normalized features against normalized class vectors, and distances: cosine logits with a learned scale."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16, momentum=0.05), nn.Hardswish(),
                                      nn.Linear(16, 8), nn.LayerNorm(8, elementwise_affine=False))
        self.prototypes = nn.Parameter(torch.randn(10, 8))
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.2))
        self.mix = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        z = self.backbone(x)
        z_n = F.normalize(z, dim=-1)
        w = self.prototypes / self.prototypes.norm(dim=1, keepdim=True)
        cosine = self.logit_scale.exp() * z_n @ w.t()
        distance = -((z.unsqueeze(1) - self.prototypes) ** 2).sum(-1)
        gate = torch.sigmoid(self.mix)
        return torch.lerp(cosine, distance, gate)


class ConvLSTM(nn.Module):
    """A cell of convolutions in a Python loop, states filled in place."""

    def __init__(self, cin=2, hidden=4):
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2d(cin + hidden, 4 * hidden, 3, padding=1)
        self.register_parameter("peep", nn.Parameter(torch.zeros(1, hidden, 1, 1)))
        self.fc = nn.Linear(hidden * 4, 10)

    def forward(self, x):
        b, t, _, height, width = x.shape
        h = x.new_zeros(b, self.hidden, height, width)
        c = torch.zeros_like(h)
        outputs = torch.zeros(b, t, self.hidden, height, width, dtype=x.dtype, device=x.device)
        for step in range(t):
            i, f, o, g = torch.chunk(self.conv(torch.cat([x[:, step], h], dim=1)), 4, dim=1)
            c = torch.sigmoid(f + self.peep * c) * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * torch.tanh(c)
            outputs[:, step] = h
        last = outputs.mean(dim=1)
        return self.fc(F.adaptive_avg_pool2d(last, (2, 2)).view(b, -1))


class InPlace(nn.Module):
    """In-place arithmetic, masks, where, and the less common activations."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(7, 12), nn.Linear(12, 12), nn.Linear(12, 10)
        self.slope = nn.Parameter(torch.full((12,), 0.25))
        self.register_buffer("mean", torch.linspace(-1, 1, 7))
        self.register_buffer("keep", torch.arange(12) % 3 != 0)

    def forward(self, x):
        x = x.clone()
        x -= self.mean
        x.mul_(0.5).clamp_(min=-1.5)
        h = self.fc1(x)
        h = torch.where(h > 0, h, self.slope * h)
        h[:, ::2] = F.mish(h[:, ::2].clone())
        h[:, 3] = 0.0
        h[..., 5:7] *= 0.5
        h = h * self.keep
        a, b = torch.split(self.fc2(h), [5, 7], dim=1)
        h = torch.cat([F.logsigmoid(a), torch.abs(b) + 0.1], dim=-1)
        h = torch.stack([h, F.hardtanh(h), F.softsign(h)], dim=0).sum(dim=0).div_(3)
        h = h.masked_fill(~self.keep, 0.0) + torch.maximum(h, -h).log1p() + torch.minimum(h, h * 2).square()
        return self.fc3(F.celu(h, 0.5))


class ASPP(nn.Module):
    """Branches of dilated and depthwise convolutions, global pooling enlarged again, CBAM's spatial attention."""

    def __init__(self, cin=3, c=6):
        super().__init__()
        self.branches = nn.ModuleList([nn.Sequential(
            nn.Conv2d(cin, cin, 3, padding=r, dilation=r, groups=cin, bias=False), nn.Conv2d(cin, c, 1, bias=False),
            nn.BatchNorm2d(c, eps=1e-3, momentum=0.01), nn.ReLU6()) for r in (1, 2, 3)])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(cin, c, 1), nn.ReLU())
        self.project = nn.Conv2d(4 * c, c, 1)
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.cls = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        size = x.shape[-2:]
        out = [branch(x) for branch in self.branches]
        out.append(F.interpolate(self.pool(x), size=size, mode="bilinear", align_corners=False))
        y = F.relu(self.project(torch.cat(out, dim=1)), inplace=True)
        largest, _ = torch.max(y, dim=1, keepdim=True)
        y = y * torch.sigmoid(self.spatial(torch.cat([y.mean(1, keepdim=True), largest], 1)))
        y = F.avg_pool2d(y, 3, stride=2, padding=1, count_include_pad=False)
        return F.interpolate(self.cls(y), scale_factor=2.0, mode="bilinear")


class MixtureOfExperts(nn.Module):
    """Experts as one batched matrix, a soft gate, an entropy-like statistic as a feature."""

    def __init__(self, d=6, experts=4):
        super().__init__()
        self.w = nn.Parameter(torch.randn(experts, d, 8) / d ** 0.5)
        self.b = nn.Parameter(torch.zeros(experts, 1, 8))
        self.gate = nn.Linear(d, experts)
        self.bias = nn.Parameter(torch.zeros(experts))
        self.head = nn.Linear(9, 10)

    def forward(self, x):
        logits = self.gate(x) + self.bias
        probs = logits.softmax(-1)
        hidden = torch.baddbmm(self.b, x.unsqueeze(0).expand(self.w.size(0), -1, -1), self.w)
        hidden = F.gelu(hidden).transpose(0, 1)
        mixed = torch.bmm(probs.unsqueeze(1), hidden).squeeze(1)
        entropy = -(probs * F.log_softmax(logits, dim=-1)).sum(dim=-1, keepdim=True)
        return self.head(torch.hstack([mixed, entropy]))


class DeepFM(nn.Module):
    """Categories and numbers: embeddings with offsets, second-order sums, a deep part. Indices are computed, which
    farthing refuses."""

    def __init__(self, fields=(5, 7, 4), dim=4, numbers=3):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, *torch.tensor(fields).cumsum(0)[:-1].tolist()]))
        self.embedding = nn.Embedding(sum(fields), dim)
        self.first = nn.Embedding(sum(fields), 1)
        self.linear = nn.Linear(numbers, dim)
        self.bias = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear((len(fields) + 1) * dim, 10), nn.BatchNorm1d(10, affine=False), nn.ReLU(),
                                 nn.Linear(10, 1))

    def forward(self, categories, numbers):
        ids = categories + self.offsets
        e = torch.cat([self.embedding(ids), self.linear(numbers).unsqueeze(1)], dim=1)
        second = 0.5 * (e.sum(1).pow(2) - (e ** 2).sum(1)).sum(1, keepdim=True)
        y = self.bias + self.first(ids).sum(1) + second + self.mlp(e.reshape(e.size(0), -1))
        return torch.cat([y, torch.sigmoid(y)], dim=-1)


def image(channels, size):
    return lambda: torch.randn(BATCH, channels, size, size)


def rows(*size):
    return lambda: torch.randn(BATCH, *size)


def ids(most, length):
    return lambda: torch.randint(0, most, (BATCH, length))


def labels(count=BATCH, classes=10):
    return lambda: torch.randint(0, classes, (count,))


CASES = {UNet: ([image(3, 18)], rows(2, 18, 18)), SEResNeXt: ([image(3, 15)], labels()),
         GPT: ([ids(17, 8)], labels(BATCH * 8, 17)), LSTMClassifier: ([ids(20, 7)], labels()),
         GRURegressor: ([rows(6, 4)], rows(2)), MLPMixer: ([image(3, 16)], labels()),
         Autoencoder: ([image(1, 12)], rows(1, 12, 12)), TwoInputs: ([image(3, 9), rows(5)], labels()),
         ViT: ([image(3, 16)], labels()), TCN: ([rows(3, 16)], labels()),
         WeightStandardized: ([image(3, 10)], labels()), SuperResolution: ([image(1, 8)], rows(1, 16, 16)),
         GatedText: ([ids(30, 9)], labels()), EinsumTransformer: ([rows(6, 3)], labels()),
         Prototypes: ([rows(12)], labels()), ConvLSTM: ([rows(3, 2, 6, 6)], labels()), InPlace: ([rows(7)], labels()),
         ASPP: ([image(3, 12)], rows(2, 12, 12)), MixtureOfExperts: ([rows(6)], labels()),
         DeepFM: ([ids(4, 3), rows(3)], rows(2))}


# The operator and the part of the line that a message names.
REFUSED = {DeepFM: ("aten.embedding.default", "self.embedding(ids)")}


def named_line(module, part):
    """The name and line of the file, as messages have them."""
    lines, first = inspect.getsourcelines(module)
    return f"test_modules.py:{first + next(i for i, line in enumerate(lines) if part in line)}"


@pytest.mark.parametrize("module", CASES, ids=lambda m: m.__name__)
def test_modules(module, tmp_path):
    inputs, targets = CASES[module]
    if module not in REFUSED:
        compare_inputs(module, lambda: tuple(make() for make in inputs), targets, tmp_path)
        return
    operator, part = REFUSED[module]
    message = refusal(module(), tuple(make() for make in inputs), targets(), tmp_path)
    assert f"{operator} ({named_line(module, part)}, in forward: " in message and part in message


class Small(nn.Module):
    """A linear layer, a vector and a table around a function."""

    def __init__(self, function):
        super().__init__()
        self.function, self.table = function, nn.Embedding(5, 8)
        self.linear, self.vector = nn.Linear(8, 8), nn.Parameter(torch.linspace(-1, 1.5, 8))

    def forward(self, x):
        return self.function(self, x)


def assign_rows(m, x):
    h = m.linear(x) * 1
    h[:, 1:7][:, 2:4] = m.vector[:2]
    h[:, 6::3] += m.vector[:1]
    h[:, -1] = 0.5
    return h * h


def change_both_ways(m, x):
    h = m.linear(x) * 1
    part = h[:, 1:7]
    part[:, 2:4] = m.vector[:2]
    part.add_(1)
    return torch.cat([part, h], 1)


def change_under_view(m, x):
    h = m.linear(x) * 1
    part = h[:, :4]
    h.mul_(2)
    return torch.cat([part, h], 1)


def change_under_result(m, x):
    h = m.linear(x) * 1
    pairs = h.view(-1, 4, 2)
    pairs[:, 0] = m.vector[:2]
    return h


# What has been wrong without a message, and operators that other users' modules had.
TRAPS = {
    "assign rows": (rows(8), assign_rows),
    "change both ways": (rows(8), change_both_ways),
    "ids to truth": (ids(3, 4), lambda m, x: m.table(x) * x.bool().float()[..., None]),
    "ids to numbers": (ids(3, 4), lambda m, x: m.table(x) * x.float()[..., None]),
    "truth of ids": (ids(3, 4), lambda m, x: m.table(x) * (~(x.eq(0) | (x > 1)))[..., None]),
    "detach": (rows(8), lambda m, x: m.linear(x) * m.linear(x).detach() + torch.round(m.linear(x)).detach()),
    "several terms": (rows(8), lambda m, x: torch.einsum("oi,ni,i->no", m.linear.weight, m.linear(x), m.vector)),
    "experts": (rows(2, 8), lambda m, x: (m.linear(x).transpose(0, 1) @ m.linear.weight.view(2, 8, 4)).transpose(0, 1)),
    "largest": (rows(8), lambda m, x: m.linear(x).view(-1, 2, 4).max(1)[0] - torch.min(x[:, :4], m.vector[:4])),
    "moved": (rows(2, 8), lambda m, x: m.linear(x).movedim(1, -1).tile(1, 2, 1)),
    "any dimensions": (rows(2, 8), lambda m, x: torch.einsum("...i,oi->...o", m.linear(x), m.linear.weight)),
    "attention of one head": (rows(4, 8), lambda m, x: F.scaled_dot_product_attention(m.linear(x), x, m.linear(x))),
    "unshuffled": (rows(2, 4, 8), lambda m, x: F.pixel_unshuffle(m.linear(x), 2)),
    "each twice": (rows(3, 8), lambda m, x: m.linear(x).repeat_interleave(2, 1) * m.vector),
    "remainders": (rows(8), lambda m, x: m.linear(x) % 0.7 + x // 0.3),
    "other bases": (rows(8), lambda m, x: m.linear(x).exp2() + x.square().add(1).log2() * m.vector.exp().log10()),
    "circular": (rows(8, 6), lambda m, x: F.pad(m.linear(x.mT).mT, (2, 3), mode="circular")),
    "reflect": (rows(8, 6), lambda m, x: F.pad(m.linear(x.mT), (3, 1), mode="reflect")),
    "weighted": (rows(8), lambda m, x: torch._weight_norm(m.linear.weight, m.vector[:, None], 0) @ x[:, :, None]),
}
WRONG = {
    "times the batch": (lambda m, x: m.linear(x) * x.shape[0], "aten.mul.Tensor", "depends on the batch"),
    "filled with the batch": (lambda m, x: m.linear(x) + torch.full((8,), x.shape[0]), "aten.full.default",
                              "depends on the batch"),
    "a view in a list": (change_under_view, "aten.mul_.Tensor", "changed in place while a view"),
    "a view of the result": (change_under_result, "aten.copy_.default", "changed in place while a view"),
    "places": (lambda m, x: m.linear(x).max(1, keepdim=True)[1] * m.linear(x), "aten.max.dim", "places"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps(name, tmp_path):
    make_input, function = TRAPS[name]

    def make_targets():
        with torch.no_grad():
            return torch.randn(Small(function)(make_input()).shape)

    compare_inputs(lambda: Small(function), lambda: (make_input(),), make_targets, tmp_path)


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name, tmp_path):
    function, operator, text = WRONG[name]
    message = refusal(Small(function), (rows(8)(),), torch.randn(BATCH, 8), tmp_path)
    assert f"{operator} (test_modules.py:" in message and text in message
