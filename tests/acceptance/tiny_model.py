"""Build a tiny language model with random weights, for the `transformers serve` that the acceptance tests probe.

Usage: `VENV/bin/python tiny_model.py FOLDER`, with the environment made by `.ci/transformers-venv`; nothing else of
the project imports this file, because torch and transformers live in that environment only.

The text means nothing; a probe measures how it arrives. Two properties are therefore built in:

1. Every generated token shows. All tokens but those of readable ASCII text are suppressed, since a special token, or
   half of a UTF-8 sequence, reaches a streaming client late or never.
2. Every answer has the length that was asked for. It lacks an end-of-sequence token: only `max_tokens` ends it.

The size is chosen too: a step takes about two milliseconds of one core. With a smaller model Python's own lock holds
the server's event loop up for longer than a step, and several tokens leave in one piece.
"""

import sys
from pathlib import Path

import tokenizers  # type: ignore[import-not-found]  # lives in the server's environment only
import torch  # type: ignore[import-not-found]  # likewise
import transformers  # type: ignore[import-not-found]  # likewise

SEED = 20_240_229
CONTEXT_TOKENS = 2048
VOCABULARY_TOKENS = 512
MARKERS = ["<|turn|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
SENTENCES = [
    "A line of equal travel time is called an isochrone.",
    "The first token of an answer tells how long the prompt waited.",
    "The tokens that follow it tell how fast the answer was written.",
    "Every region sees its own network, and every network has its own hours.",
    "What was measured once is an anecdote; what was measured often is a distribution.",
]


def tiny_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with a chat template; it can write any prompt down, token by token."""
    bytewise = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = bytewise(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY_TOKENS,
        initial_alphabet=sorted(bytewise.alphabet()),
        special_tokens=MARKERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=CHAT_TEMPLATE,
        extra_special_tokens=MARKERS,
        model_max_length=CONTEXT_TOKENS,
    )


def shows(text: str) -> bool:
    """Return whether a token that decodes to `text` adds characters that a reader sees."""
    return text.isascii() and text.isprintable() and bool(text)


def unseen_tokens(tokenizer: transformers.PreTrainedTokenizerFast) -> list[int]:
    """Return the tokens that do not show as readable ASCII when each is decoded alone."""
    return [token for token in range(len(tokenizer)) if not shows(tokenizer.decode([token], skip_special_tokens=True))]


def tiny_model(tokenizer: transformers.PreTrainedTokenizerFast) -> transformers.LlamaForCausalLM:
    """Return a four-layer Llama of random weights, the same at every call, that never ends an answer."""
    torch.manual_seed(SEED)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT_TOKENS,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    model.generation_config = transformers.GenerationConfig(
        do_sample=False,
        repetition_penalty=1.2,  # a random model otherwise says one token for ever
        suppress_tokens=unseen_tokens(tokenizer),
    )
    return model


def main(folder: Path) -> None:
    """Write model, tokenizer and generation settings into `folder`, which is made if it is missing."""
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    tiny_model(tokenizer).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
