"""Recall: two legs that each bring a pool of candidates, by an exact plan or an indexed one with the same meaning."""
