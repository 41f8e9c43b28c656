"""Groups of a sweep as jobs of submitit: on SLURM, or here in processes that outlive the command."""

from ffnbench.features import Feature

LOCAL, SLURM = "local", "slurm"  # where jobs run
FEATURE = Feature(name="cluster", measures=True)
