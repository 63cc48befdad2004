# SPDX-License-Identifier: GPL-2.0-only
"""A model's folder for vLLM without a download: a Llama of two layers, whose weights are never used, and a tokenizer
that is trained on the text that it is given.

    python make_model.py FOLDER TEXT…
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
END = "</s>"


def main(folder, texts):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "eos_token_id": 0, "bos_token_id": 0,
    }
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END, "model_max_length": 4096}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: make_model.py FOLDER TEXT…")
    main(sys.argv[1], sys.argv[2:])
