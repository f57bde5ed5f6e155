"""What several device files share."""
