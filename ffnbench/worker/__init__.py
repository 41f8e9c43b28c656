"""What does a process do that measures?"""
