"""Has it got slower?"""
