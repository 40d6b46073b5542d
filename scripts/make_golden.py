"""Write the reference answers that tests/inference/test_golden.py compares the engine with.

The reference is Hugging Face transformers in float32, on the weights its own GGUF reader takes from the very
file the engine runs: another implementation of the file format, of the dequantisation's layout, of the model
and of the chat template, so a fault common to both would have to be made twice. Two files are written:

    smollm2_135m_q4_1.json   texts, token ids, rendered chats, greedy continuations, versions
    smollm2_135m_q4_1.npz    logits: per position the top 8, and the values at 128 fixed vocabulary entries

Run it with `pip install -e '.[golden]'`:

    python scripts/make_golden.py PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf tests/inference/golden
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.pre_tokenizers import Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "smollm2_135m_q4_1"
NUM_TOP = 8
NUM_SAMPLED_IDS = 128
NUM_GREEDY_TOKENS = 48

PROSE = (
    "The harbour of Ronneby was built in 1748, when the town had 1,312 inhabitants and 27 ships. In spring the ice "
    "broke late, and for eleven days no vessel could leave; the price of salt rose from 3 to 9 daler a barrel. A "
    'letter of the harbour master, dated the 4th of April, complains that "the men drink what they earn, and earn '
    'what they drink". Half a century later the quay was lengthened by 60 metres. It carried timber, tar and, in '
    "the hungry years, people: between 1868 and 1873 more than 2,400 of them boarded here for Hull, and from Hull "
    "by rail to Liverpool. Few of them came back. The customs ledgers, which survived the fire of 1864 in a cellar, "
    "list every barrel of herring but not one passenger by name. What we know of them we know from"
)
CODE = '''def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping intervals."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
\t\tmerged.append((start, end))
    return merged


'''
UNICODE = "Grüße aus Köln! Πάντα ῥεῖ. 東京は日本の首都です。 한국어 🙂👩‍👩‍👧 naïve café — “quoted” ½ ²³ مرحبا"

CHATS: dict[str, list[dict[str, str]]] = {
    "chat_short": [{"role": "user", "content": "What is the capital of France?"}],
    "chat_system": [
        {"role": "system", "content": "You sort support requests. Answer with one word."},
        {
            "role": "user",
            "content": "My invoice of 12 March shows 240 euros twice. Is this billing or technical?",
        },
    ],
    "chat_turns": [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one, please.\n\nAnd say why."},
    ],
}
TEXTS: dict[str, str] = {
    "one_token": "Hello",
    "short": "The capital of France is",
    "prose": PROSE,
    "code": CODE,
    "unicode": UNICODE,
}
ONLY_TOKENIZED: list[str] = [
    "",
    " ",
    "a",
    "  two leading and trailing  ",
    "tabs\tand\t\tmore\t\t\t",
    "lines\n\n\nand\r\nreturns\r\r\n",
    "     five spaces, then       seven",
    "1 22 333 4444 55555 3.14159 1,000,000 0x1F 12:30",
    "It's we'll they've I'd you're IT'S",
    "snake_case camelCase kebab-case SCREAMING",
    "!!! ... ??? --- ___ === ### ```",
    "e\u0301 vs \u00e9; \u212b vs \u00c5; \ufb01",
    "\u200b\u200d\ufeff\u00a0\u2003\u3000",
    "🙂🙃👩‍👩‍👧🇸🇪",
    "١٢٣ ４５６ Ⅷ ½ ²",
    "ქართული ไทย עברית हिन्दी",
    "\x00\x01\x7f",
    "http://example.org/a?b=c&d=%20e#f",
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the golden files of the default model.")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    folder, file = str(arguments.model.parent), arguments.model.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    # transformers' GGUF reader ignores `tokenizer.ggml.pre`; the model's own tokenizer.json (pre-tokenizer
    # `smollm`) splits digits before the byte-level rule, which is what the model was trained with.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()

    prompts: dict[str, list[int]] = {
        name: tokenizer(text, add_special_tokens=False)["input_ids"] for name, text in TEXTS.items()
    }
    chats: dict[str, Any] = {}
    for name, messages in CHATS.items():
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompts[name] = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        chats[name] = {"messages": messages, "rendered": rendered, "ids": prompts[name]}

    sampled_ids = np.sort(np.random.default_rng(0).choice(model.config.vocab_size, NUM_SAMPLED_IDS, replace=False))
    arrays: dict[str, np.ndarray] = {"sampled_ids": sampled_ids.astype(np.int32)}
    greedy: dict[str, Any] = {}
    for name, ids in prompts.items():
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0]
        top = logits.topk(NUM_TOP)
        arrays[f"{name}.top_ids"] = top.indices.numpy().astype(np.int32)
        arrays[f"{name}.top_logits"] = top.values.numpy()
        arrays[f"{name}.sampled_logits"] = logits[:, sampled_ids].numpy()
        arrays[f"{name}.max_abs"] = logits.abs().amax(-1).numpy()
        greedy[name] = continue_greedily(model, ids)
        print(f"{name}: {len(ids)} tokens -> {tokenizer.decode(greedy[name]['ids'])!r}")

    tokenized = [
        {"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
        for text in (*TEXTS.values(), *ONLY_TOKENIZED)
    ]
    record = {
        "made_by": "scripts/make_golden.py",
        "model_sha256": hashlib.sha256(arguments.model.read_bytes()).hexdigest(),
        "versions": {name: version(name) for name in ("transformers", "torch", "gguf", "tokenizers", "accelerate")},
        "machine": platform.machine(),
        "prompts": prompts,
        "chats": chats,
        "greedy": greedy,
        "tokenized": tokenized,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=True, indent=None, separators=(",", ":"))
    (arguments.out / f"{NAME}.json").write_text(text + "\n", encoding="ascii")
    np.savez_compressed(arguments.out / f"{NAME}.npz", **arrays)


def continue_greedily(model: Any, ids: list[int]) -> dict[str, Any]:
    """Return the next tokens, without a stop at end-of-text, and each one's lead over the runner-up in
    logits."""
    tokens: list[int] = []
    margins: list[float] = []
    step, cache = torch.tensor([ids]), None
    with torch.inference_mode():
        for _ in range(NUM_GREEDY_TOKENS):
            result = model(step, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            best, second = result.logits[0, -1].topk(2).values.tolist()
            tokens.append(int(result.logits[0, -1].argmax()))
            margins.append(round(best - second, 4))
            step = torch.tensor([[tokens[-1]]])
    return {"ids": tokens, "margins": margins}


if __name__ == "__main__":
    main()
