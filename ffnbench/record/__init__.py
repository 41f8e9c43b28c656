"""What was answered: the types of a report, messages of workers, published machines."""
