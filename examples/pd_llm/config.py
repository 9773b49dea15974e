"""The shape of a Llama-architecture model, apart from its weights."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a model whose query heads share KV heads in groups."""

    name: str
    """What both engines register as `Layout.model`."""
    layers: int
    hidden: int
    heads: int
    """Query heads."""
    kv_heads: int
    head_dim: int
    ffn: int
    """Width of the gated feed-forward network."""
    vocab: int
    context: int
    """Most tokens of prompt and answer together."""
    rope_base: float
    norm_eps: float
    eos: int
    """Token that ends an answer."""

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def qkv_rows(self) -> int:
        """Output rows of one KV head's fused projection: its query heads, its key, its value."""
        return (self.group + 2) * self.head_dim

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight by name, with its shape; all are fp32 and linear ones are `[out, in]`.

        `qkv` is cut by KV head so that a tensor-parallel rank takes whole entries of its first axis: each head's
        matmul then has the same shape, hence the same bits, at any tensor-parallel size.
        """
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab, self.hidden), "norm": (self.hidden,)}
        for layer in range(self.layers):
            shapes |= {
                f"{layer}.attn_norm": (self.hidden,),
                f"{layer}.qkv": (self.kv_heads, self.qkv_rows, self.hidden),
                f"{layer}.out": (self.hidden, self.heads * self.head_dim),
                f"{layer}.ffn_norm": (self.hidden,),
                f"{layer}.gate_up": (2 * self.ffn, self.hidden),
                f"{layer}.down": (self.hidden, self.ffn),
            }
        return shapes


SMOLLM2 = ModelConfig(
    name="SmolLM2-135M-Instruct",
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    vocab=49152,
    context=8192,
    rope_base=100_000.0,
    norm_eps=1e-5,
    eos=2,
)
"""The model of the demo; the figures are those of its GGUF."""

RANDOM = replace(SMOLLM2, name="random", layers=4)
"""The same with fewer layers and weights drawn from a seed: nothing to download, and as good for moving its KV."""

MODELS = {"smollm2": SMOLLM2, "random": RANDOM}
"""What `--model` takes."""
