"""What the exams share that the scripts beside this folder set: how often ffnbench is
wrong, and what it lets pass.
"""
