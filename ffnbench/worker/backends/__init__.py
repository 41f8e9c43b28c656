"""How is a case built and run?"""
