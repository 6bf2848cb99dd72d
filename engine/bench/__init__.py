"""`jiyi bench`: how long searches take here, stage by stage, on a user's own store or on made-up memories."""
