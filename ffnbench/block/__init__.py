"""What is an FFN beside the attention of its block?"""
