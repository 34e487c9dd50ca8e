"""Sound: codecs, vocoders, speech encoders."""

from benchmarks.tiny_models.registry import settings

settings("dac", encoder_hidden_size=8, decoder_hidden_size=64, n_codebooks=2, downsampling_ratios=[2, 4, 5, 8])
settings("perceiver", num_latents=6, d_latents=64, d_model=64, num_self_attends_per_block=2, num_blocks=1,
         qk_channels=64, v_channels=64)  # fmt: skip
