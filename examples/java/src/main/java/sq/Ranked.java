package sq;

/**
 * A document's place in an answer to a query.
 *
 * @param document its index
 */
public record Ranked(int document, float score) {}
