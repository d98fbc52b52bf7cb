// What the rows of the family table may say, and the rows that they build on. Internal to family_rows.cpp.
#pragma once

#include <string_view>

namespace mfu {

// The names that a text model's row defines. Dimensions are in elements.
// clang-format off
//
//   d L V            width, layers, rows of the output matrix
//   H K h hv         query heads, key/value heads, widths of a query/key head and of a value head
//   f m              MLP width; its matrices, 3 where it is gated
//   kind             none, attention, latent, mamba1, mamba2, delta or linear
//   gate             1: the query projection makes a gate of its own width too
//   window chunk     keys that a query sees: the last ones (not causal: to each side), or those of its own chunk
//   sb sr            block-sparse attention: tokens of a block, random blocks that a query sees
//   topk ih id ip    sparse attention: keys that the core sees, heads and width of the index; 1: its heads add up
//   comp             tokens per compressed entry, which a query sees beside its window
//   pr ps pp pg      relative positions beside the keys: vectors, products with them, matrices that they pass; how many:
//                    0 all of them, 1 as twice the sequence is long, 2 likewise and per sequence
//   kv or og         keys and values: 0 own, 1 one projection, 2 one vector, 3 those of a layer below; output projection
//                    by groups: width of each, how many
//   aw cw sf se      further matrices and convolutions per token; state FLOP per token, state elements per sequence
//   causal enc       1: causal; 1: an encoder alone
//   moe E k fe fs    1: this layer has experts; how many, used, their width, that of all shared ones together
//   ei               width that routed experts read, 0: d
//   sg rx ex sx      gate of the shared expert; parameters besides matrices of router, one expert, shared experts
//   layer            parameters of a layer that are no matrix, but those of the next two lines
//   dense_x          biases of a dense MLP
//   attx             biases and vectors of the mixer
//   tied io emb      tied matrices; width of input table and output matrix if not d; elements of the input table
//   out outa pos     parameters outside layers: norms, of the attention, positions
//   tok seq          matrix elements per token and per sequence besides layers
//   ftok fseq fx     products of convolutions in front, per token and per sequence; their parameters
//   guess            1: counted by a rule that the model's inputs decide; its sentence is `guessed`
//   htok hx hn ho    the head: matrix elements per token, parameters, of these its norm and others
//   cls_* tc_*       heads of classifiers of sequences and tokens: per token (_tok), sequence (_seq), parameters (_x)
//   base_*           what the bare model has behind its layers, likewise
//   pre_*            the head of *ForPreTraining; pre_lm: 1: beside the own head, 2: not known
//   labels           outputs of a classifier (given)
//   max              longest sequence
//   qr kvr nope rope latent attention: ranks of queries and of the latent, widths of a head's two parts
//   mh mi ms mg mc mr  state space: heads, inner width, state, groups, convolution, rank of the step size
//   dkh dk dvh dv    delta net: heads and widths of keys and values
//   eL eH eK eh ef em elayer eout eouta eattx eaw efront ewin    the encoder of an encoder-decoder
//   xH xh xK xi      heads, their width, key/value heads (0: xH) and width of what is attended to (0: d) of the
//                    decoder's attention to the encoder, or a diffusion transformer's to the text
//   cross joint two  1: has it without an encoder; text tokens in the same sequence: 1 both are read after, 2 the image's;
//                    1: text tokens have matrices of their own
//   wi               1: the layer runs only where there are images to attend to, and attends to them
//   tc_enc           1: a classifier of tokens has the encoder alone
//   ctx eD           matrix elements per text token; width of the encoder, 0: d
//   mtp mtpx         prediction modules like the last layer; parameters of one besides that layer
//   stored known     copies of the weights where layers share them; 0: a variant that is refused
// clang-format on
inline constexpr std::string_view kTextBase = R"(
  d=hidden_size; L=num_hidden_layers; H=num_attention_heads; K=num_key_value_heads~H; h=head_dim~(d/H); hv=h;
  f=intermediate_size; m=3; V=vocab_size; tied=tie_word_embeddings~0; io=0; emb=V*(io > 0 ? io : d);
  none=0; attention=1; latent=2; mamba1=3; mamba2=4; delta=5; linear=6; kind=attention;
  qb=attention_bias~0; ob=qb; mb=0; hb=0; nd=d; norms=2; qkn=0; extra=0; max=max_position_embeddings~0;
  biases=qb*(h*(H+K) + hv*K) + ob*d; dense_x=mb*((m-1)*f + d); layer=norms*nd + qkn + extra; out=nd; pos=0; outa=0;
  gate=0; sl=0; slides=has(layer_types) ? atis(layer_types,i,sliding_attention) : sl; window=slides ? sliding_window : 0;
  chunk=0; topk=0; ih=0; id=0; ip=0; comp=0; kv=0; or=0; og=0; qr=0; ei=0; aw=0; cw=0; sf=0; se=0; causal=is_causal~1; enc=!causal; sb=0; sr=0; ewin=0; tok=0; seq=0; htok=0; hx=hb*V; hn=0; ho=0;
  attx=kind == attention ? biases : 0;
  mo=0; moe=has(mlp_layer_types) ? atis(mlp_layer_types,i,sparse) : mo; fs=0; sg=0; rx=0; ex=0; sx=0;
  cls_tok=d*labels; cls_seq=0; cls_x=0; tc_tok=d*labels; tc_x=labels; base_seq=0; base_x=0; eL=0; tc_enc=0; cross=0; wi=0; joint=0; two=0; ctx=0; eD=0; xK=0; xi=0; eouta=0; eattx=0;
  pr=0; ps=0; pp=0; pg=0; ftok=0; fseq=0; fx=0; mtp=0; mtpx=2*d*d + 3*d; stored=0; known=1)";

/// A row without a type of its own.
struct RowBase {
  std::string_view name, text;
};

// Rows that others build on.
inline constexpr RowBase kRowBases[] = {
    {"_llama", ""},
    // GPT-2's keys: biases everywhere, learned positions.
    {"_gpt",
     "d=n_embd; L=n_layer; H=n_head; K=H; h=d/H; f=n_inner~(4*d); m=2; nd=2*d; qb=1; mb=1; tied=tie_word_embeddings~1;"
     "max=n_positions; pos=max*d"},
    {"_moe",
     "mo=1; E=num_experts~num_local_experts~n_routed_experts; k=num_experts_per_token~num_experts_per_tok; "
     "fe=moe_intermediate_size"},
    // Latent attention and DeepSeek's experts.
    {"_mla",
     "kind=latent; K=1; qr=q_lora_rank~0; kvr=kv_lora_rank; nope=qk_nope_head_dim; rope=qk_rope_head_dim;"
     "h=nope+rope; hv=v_head_dim; layer=2*d + qr + kvr + extra; attx=(attention_bias~0)*(qr + kvr + rope + d);"
     "mo=i >= first_k_dense_replace~0 && i % (moe_layer_freq~1) == 0; E=n_routed_experts;"
     "k=num_experts_per_tok; fe=moe_intermediate_size; fs=n_shared_experts~0*fe; rx=E"},
    // BERT: post-norm, learned positions and token types, a pooler, a masked-language-model head.
    {"_bert",
     "K=H; h=d/H; m=2; nd=2*d; qb=1; mb=1; tied=tie_word_embeddings~1; causal=is_decoder~0; enc=!causal; "
     "types=type_vocab_size~2;"
     "pos=(max_position_embeddings + types)*d; htok=d*d; hx=V*(2 - tied); hn=2*d; ho=d; base_seq=d*d; base_x=d;"
     "pre_lm=1; pre_tok=0; pre_seq=base_seq + 2*d; pre_x=base_x + 2;"
     "cls_tok=0; cls_seq=d*d + d*labels; cls_x=d + labels"},
    // BART: encoder and decoder with biases, learned positions with two more rows in each.
    {"_bart",
     "d=d_model; L=decoder_layers; H=decoder_attention_heads; K=H; h=d/H; f=decoder_ffn_dim; m=2; nd=2*d; qb=1;"
     "mb=1; tied=tie_word_embeddings~1; emb=V*d*(tied ? 1 : 3); norms=3; rows=2; pos=2*(max_position_embeddings + "
     "rows)*d; out=nd;"
     "extra=h*(H+2*K) + d; xH=H; xh=h; hx=0;"
     "eL=encoder_layers; eH=encoder_attention_heads; eK=eH; eh=d/eH; ef=encoder_ffn_dim; em=m;"
     "elayer=2*nd + 4*d + ef + d; eout=nd; eaw=0; efront=0; cls_tok=0; cls_seq=d*d + d*labels; cls_x=d + labels"},
    // Diffusion transformers: every token sees every other, the step and the pooled text come in once per image.
    {"_dit", "d=H*h; K=H; hv=h; m=2; f=4*d; V=0; emb=0; tied=1; causal=0; enc=1; qb=0; max=0"},
    {"_tower", R"(d=hidden_size; L=num_hidden_layers; H=num_attention_heads; w=d; f=intermediate_size; m=2;
       C=num_channels~3; p=patch_size; hi=high(image_size) // high(patch_size); wi=wide(image_size) // wide(patch_size);
       n=hi*wi; x=0; pe=C*high(patch_size)*wide(patch_size); nd=2*d; ab=1; mb=1; pb=1; rows=n+x; outer=1; extra=0; lx=0;
       qb=3*ab; ob=ab; layer=2*nd + qb*w + ob*d + mb*((m-1)*f + d) + lx; out=pb*d + x*d + rows*d + outer*nd + extra;
       merge=1; window=0; global=0; dynamic=0; image_flop=0; image_core=0; grid=1; image_x=0; head_flop=0; head_x=0; base_flop=0; base_x=0;
       pooling=0; plain=0; known=1; p1i=0; p1o=0; p2i=0; p2o=0; j1i=0; j1o=0; j2i=0; j2o=0; j3i=0; j3o=0; jn=1; jx=0; tokens=0)"},
    // part: the row has parameters alone, and stands for nothing outside another model.
    // Towers that take an image as it is, in patches that later merge (Qwen2-VL and its kin).
    {"_dynamic", R"(dynamic=1; n=1; L=depth; H=num_heads; C=in_channels~in_chans~3; p=patch_size~spatial_patch_size~14;
       t=temporal_patch_size~2; pe=C*t*p*p; rows=0;
       hi=1; wi=1; merge=spatial_merge_size~2; mm=merge*merge)"},
    // A text model under `text`, of `text_type` where it does not say; a tower under `vision` likewise. td, vd: their
    // widths. p1i p1o ...: matrices that every patch passes before patches merge; j1i j1o ...: matrices of the
    // projector, in and out; jx: its other parameters; tokens: after pooling. inner_tie: 1: the text model's own word
    // on tying comes first, 2: either's is enough, 3: it alone; lone: 1: a file without a tower is
    // a text model, 2: so we take it, and say so. pair: two towers beside each other, an image with every text (CLIP);
    // tseq, ttok: matrix elements per text and per token; iflop, icore, ix: FLOP, of these in attention, and parameters
    // per image besides; bare: the text model without its pooler, own_head: with its own head whatever the class;
    // untied: never tied; headless: no output matrix; fixed: the tower is this one whatever its file says. audio,
    // audio_type: a sound encoder, whose parameters alone are counted; ax: further ones beside it. left_out: a sentence
    // about parts that are not counted.
    {"_composite",
     R"(p1i=0; p1o=0; p2i=0; p2o=0; j1i=0; j1o=0; j2i=0; j2o=0; j3i=0; j3o=0; jn=1; jx=0; tokens=0; merge=1; text=text_config; vision=vision_config;
       inner_tie=0; ask=0; lone=0; pair=0; bare=0; own_head=0; untied=0; tseq=0; ttok=0; iflop=0; icore=0; ix=0; headless=0; fixed=0; audio=none; audio_type=none; ax=0;
       text_type=llama; vision_type=siglip_vision_model)"},
};

}  // namespace mfu
