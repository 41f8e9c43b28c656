"""How is it called from Python?"""
