"""What is true of an activation?"""
