"""What do published models have?"""
