"""How often ffnbench is wrong on this machine, by runs whose true ratios are known."""
