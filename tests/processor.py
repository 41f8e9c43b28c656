"""What this machine's processor can compute, by its own flags."""

from __future__ import annotations

from pathlib import Path

FLAGS = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())

# without these, 8-bit products of oneDNN and ONNX Runtime saturate at 16 bits
HAS_8_BIT_PRODUCTS = bool(FLAGS & {"avx512_vnni", "avx_vnni"})
HAS_AVX512 = "avx512f" in FLAGS
