"""What runs in processes of its own: each library as its users write it. Nothing here is imported by us."""
