"""Which protocol a table needs: versions, lists of features, changes between two protocols."""
