"""How often is it wrong?"""
