"""Groups of a sweep as jobs of submitit: on SLURM, or here in processes that outlive
the command.
"""

LOCAL, SLURM = "local", "slurm"  # where jobs run
