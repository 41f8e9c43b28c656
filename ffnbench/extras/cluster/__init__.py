"""Groups of a sweep as jobs of submitit: on SLURM, or here in processes that outlive the command."""

from ffnbench.features import Feature

FEATURE = Feature(name="cluster")
