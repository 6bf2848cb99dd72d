"""How candidates become an answer: recall → fuse → recency → rerank → diversify → cut."""
