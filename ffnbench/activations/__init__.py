"""What is true of activations, and what do their operations take?"""
