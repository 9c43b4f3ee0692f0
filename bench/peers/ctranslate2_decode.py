"""Greedy decoding with CTranslate2: the same work as bench/decode, with its weights.

Prints a JSON object with the tokens of all outputs, then the milliseconds of each decoding asked for on standard input
("run N" lines), so that a driver can interleave it with other programs.
"""
import argparse
import tempfile

import ctranslate2
from ctranslate2.specs import TransformerSpec

import peer


def set_linear(spec, weight, bias):
    spec.weight, spec.bias = weight, bias


def set_norm(spec, w, name):
    spec.gamma, spec.beta = w[name + ".weight"], w[name + ".bias"]


def set_attention(spec, w, name, norm, crossed=False):
    weight, bias = w[name + ".in_proj_weight"], w[name + ".in_proj_bias"]
    d = weight.shape[1]
    if crossed:
        set_linear(spec.linear[0], weight[:d], bias[:d])
        set_linear(spec.linear[1], weight[d:], bias[d:])
    else:
        set_linear(spec.linear[0], weight, bias)
    set_linear(spec.linear[-1], w[name + ".out_proj.weight"], w[name + ".out_proj.bias"])
    set_norm(spec.layer_norm, w, norm)


def specification(c, w):
    """CTranslate2's description of the model that w holds."""
    spec = TransformerSpec.from_config((c.encoder_layers, c.decoder_layers), c.heads, pre_norm=False)
    for side, part, embeddings in ("encoder", spec.encoder, spec.encoder.embeddings[0]), ("decoder", spec.decoder,
                                                                                         spec.decoder.embeddings):
        embeddings.weight = w["src_embedding.weight" if side == "encoder" else "tgt_embedding.weight"]
        part.position_encodings.encodings = peer.positions(512, c.d_model)
        for i, layer in enumerate(part.layer):
            name = f"{side}.layers.{i}"
            set_attention(layer.self_attention, w, name + ".self_attn", name + ".norm1")
            if side == "decoder":
                set_attention(layer.attention, w, name + ".multihead_attn", name + ".norm2", crossed=True)
            set_norm(layer.ffn.layer_norm, w, name + (".norm2" if side == "encoder" else ".norm3"))
            set_linear(layer.ffn.linear_0, w[name + ".linear1.weight"], w[name + ".linear1.bias"])
            set_linear(layer.ffn.linear_1, w[name + ".linear2.weight"], w[name + ".linear2.bias"])
    set_linear(spec.decoder.projection, w["generator.weight"], w["generator.bias"])
    symbols = ["<unk>", "<s>", "</s>"] + [str(i) for i in range(3, c.vocab)]
    spec.register_source_vocabulary(symbols)
    spec.register_target_vocabulary(symbols)
    spec.validate()
    spec.optimize()
    return spec


def main():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, dict(peer.MODEL, threads=2, sources=1000, batch=32, source=12, target=21))
    parser.add_argument("--weights", required=True, help="the weights, written by bench/decode")
    c = parser.parse_args()
    sources = [[str(symbol) for symbol in source] for source in peer.ids(c.sources, c.source, c.vocab, 1)]
    with tempfile.TemporaryDirectory() as folder:
        specification(c, peer.load_f32(c.weights)).save(folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=c.threads,
                                            intra_threads=1)

    def decode():
        return translator.translate_batch(sources, max_batch_size=c.batch, beam_size=1, max_decoding_length=c.target,
                                          min_decoding_length=c.target - 1)

    outputs = decode()
    number = {"<unk>": 0, "<s>": 1}
    tokens = [number[t] if t in number else int(t) for result in outputs for t in result.hypotheses[0]]
    peer.take_turns(dict(name="CTranslate2 " + ctranslate2.__version__, tokens=tokens), decode)


if __name__ == "__main__":
    main()
