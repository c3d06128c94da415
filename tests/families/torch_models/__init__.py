"""Small models as people write them in torch; `CASES` of each file is what test_torch.py exports."""
